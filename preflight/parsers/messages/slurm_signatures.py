"""Errors of Slurm's commands and daemons in a job's output."""

from __future__ import annotations

from preflight.parsers.messages.signature import SLURM, signatures

_JOB = ("sacct -j JOB --format=JobID,State,ExitCode,NodeList,MaxRSS,ReqMem,Elapsed,Timelimit", "scontrol show job JOB",
        "sinfo -R")  # fmt: skip
_MEMORY = ("sacct -j JOB --format=JobID,State,MaxRSS,ReqMem", "dmesg -T | grep -i -e oom -e 'out of memory'",
           "scontrol show job JOB | grep -i mem")  # fmt: skip
_NODE = ("scontrol show node NODE", "sinfo -R", "ssh NODE 'dmesg -T | tail -50'")
_SUBMIT = ("sinfo -o '%P %a %l %D %t %G'", "scontrol show partition", "sacctmgr show assoc user=$USER")

SIGNATURES = signatures(SLURM, (
    ("slurm-oom", "oom_kill|oom-kill|out-of-memory|Out Of Memory|memory limit",
     r"error: (?P<node>[\w.-]{1,64}): tasks? (?P<rank>[\d,-]{1,60}): Out Of Memory"
     r"|[Dd]etected (?P<n>\d{1,6}) oom[_-]kill events? in (?:StepId=)?(?P<what>\S{1,60})|oom_kill event in StepId"
     r"|killed by the cgroup out-of-memory handler|: Out Of Memory\b|[Ee]xceeded (?:job|step) memory limit",
     "fail", "a step was killed at the job's memory limit", "kernel.events", _MEMORY,
     "Request more memory (`--mem`, `--mem-per-gpu`), or use fewer data-loader workers."),
    ("slurm-node-failure", "ode failure|NODE FAILURE|NODE_FAIL",
     r"[Nn]ode failure on (?P<node>[\w.-]{1,64})|DUE TO NODE FAILURE|\bNODE_FAIL\b",
     "fail", "a node of the job went down or stopped answering", "host.services", _NODE,
     "Find out why the node went down (its console, BMC, kernel log) before it runs jobs again."),
    ("slurm-time-limit", "TIME LIMIT|time limit", r"DUE TO TIME LIMIT|job time limit exceeded",
     "fail", "the job reached its time limit: too short, or the job hung", "trend.job-time", _JOB,
     "If the log's last lines show progress, request more time; otherwise look for a hang."),
    ("slurm-preempted", "DUE TO PREEMPTION|PREEMPTED", r"DUE TO PREEMPTION",
     "warn", "the job was preempted by another one", "host.services", _JOB,
     "Requeue the job from its last checkpoint."),
    ("slurm-cancelled", "CANCELLED AT",
     r"(?:JOB|STEP) (?P<what>\S{1,40}) ON (?P<node>\S{1,64}) CANCELLED AT (?!.*DUE TO)",
     "warn", "the job or step was cancelled by a user, or by srun after a task failed", "host.services", _JOB,
     "If a task failed before it, that task is the cause (`--kill-on-bad-exit`)."),
    ("slurm-task-failed", "srun: error: ",
     r"srun: error: (?P<node>[\w.-]{1,64}): tasks? (?P<rank>[\d,-]{1,60}): (?P<what>(?:Exited with exit code \d{1,3}"
     r"|Killed|Segmentation fault|Bus error|Aborted|Terminated|Floating point exception).{0,40})",
     "fail", "tasks of the job ended with an error", "job.errors", _JOB,
     "The first error in the output of these tasks is the cause."),
    ("slurm-launch", "Task launch for|task launch failed|Unable to create step|Job step creation|create job step",
     r"Task launch for StepId=\S{1,40} failed on node (?P<node>[\w.-]{1,64}): (?P<what>.{1,120})"
     r"|[Uu]nable to create (?:job )?step.{0,120}",
     "fail", "the step could not be started on a node", "host.services", _NODE,
     "Read slurmd's log on that node: check its prolog, credentials (munge) and clock."),
    ("slurm-credential-age", "redential|CODED: ",
     r"[Ee]xpired credential|[Rr]ewound credential|[Cc]redential .{0,60}expired|\berror: (?:EN|DE)CODED: .{10,60}",
     "fail", "a credential was expired or from the future on arrival: the nodes' clocks differ, or a daemon hung",
     "host.time-sync", ("chronyc tracking", "clush -a -b date", "munge -n | ssh NODE unmunge"),
     "Synchronise the clocks: compare the times of ENCODED and DECODED, and `date` on node and controller."),
    ("slurm-communication", "slurm", r"(?:(?:srun|slurmstepd|slurmd|slurmctld|sbatch|salloc|scontrol|sacct|sinfo|squeue"
     r"|\]): error: |\bslurm_\w{4,40}(?: error)?: ).{0,80}"
     r"(?:Socket timed out|Unable to contact slurm controller|Communication connection failure|Connection refused"
     r"|Protocol authentication error|Invalid credential|Munge|munge)",
     "fail", "Slurm's daemons do not reach each other", "host.services",
     ("scontrol ping", "systemctl status slurmd slurmctld munge", "date; chronyc tracking"),
     "Check the network, munge and the clocks of node and controller."),
    ("slurm-submit",
     "error: Batch job submission failed|Unable to allocate resources|allocation failure|error: QOS|error: Assoc",
     r"error: (?P<limit>(?:QOS|Assoc)[A-Z]\w{3,60})"
     r"|error: (?:Batch job submission failed|Unable to allocate resources|allocation failure)[:.]? {0,2}"
     r"(?P<what>.{0,120})",
     "fail", "Slurm rejected the job", "host.services", _SUBMIT,
     "Change the option that the message names: partition, account, limit, GRES."),
    ("slurm-gres", "gres|GRES",
     r"\b(?:fatal|error): (?:.{0,80}\bgres(?:\.conf|/gpu)\b.{0,120}|.{0,60}GRES(?:\[gpu\]| core specification).{0,120}"
     r"|.{0,80}_gres\w{0,40}: .{0,120})|Waiting for gres\.conf file|gres/gpu count reported lower than configured"
     r"|(?:slurmd|slurmctld): (?:fatal|error): .{0,80}[Gg][Rr][Ee][Ss].{0,120}",
     "fail", "slurmd does not find the GPUs in its configuration", "gpu.count",
     ("nvidia-smi -L", "ls -l /dev/nvidia*", "slurmd -G"), "Restore the missing GPU, then restart slurmd."),
    ("slurm-not-responding", "not responding|setting DOWN|unexpectedly rebooted",
     r"[Nn]odes? (?P<node>[\w.,\[\]-]{1,200}) (?:(?:are )?not responding|unexpectedly rebooted)"
     r"|Node (?P<what>[\w.-]{1,64}) .{0,60}setting DOWN",
     "fail", "the controller gets no answer from a node's slurmd", "host.services", _NODE,
     "Check that the node is up, and check slurmd, munge and the clock on it."),
    ("slurm-drained", "drain_nodes|state set to DRAIN|state to INVAL",
     r"drain_nodes: node (?P<node>[\w.-]{1,64}) state set to DRAIN"
     r"|Setting node (?P<what>[\w.-]{1,64}) state to \w{2,12}",
     "fail", "the controller took a node out of service", "host.services", _NODE,
     "`scontrol show node` has the reason; find the cause on the node before resuming it."),
    ("slurm-munge", "unge |authentication error",
     r"\berror: (?:Munge (?:de|en)code failed: .{0,120}|.{0,160}has authentication error\b)|^\W{0,4}munge: Error",
     "fail", "messages of Slurm's daemons are rejected: munge, its key or a clock differs", "host.services",
     ("munge -n | ssh NODE unmunge", "systemctl status munge", "date; chronyc tracking"),
     "Compare munge's key and the clocks of node and controller."),
    ("slurm-unkillable", "NOT ENDING WITH SIGNALS|Kill task failed|not ending",
     r"NOT ENDING WITH SIGNALS|reason set to: Kill task failed|Kill task failed\b",
     "fail", "processes of a job could not be killed: they wait in the kernel for a device or a file server",
     "host.zombies", ("ps -eo pid,stat,wchan:30,cmd | grep ' D'", "dmesg -T | tail -50", "scontrol show node NODE"),
     "Check what the processes wait for; a hanging GPU or mount needs a reboot of the node."),
    ("slurm-prolog", "rolog",
     r"(?:[Pp]rolog|[Ee]pilog)(?: .{0,60})? (?:failed|failure|error|timed out)|Prolog hung"
     r"|prolog_slurmctld.{0,80}exit status",
     "fail", "the prolog or epilog of a node failed", "host.services", _NODE,
     "Read slurmd's log of that node: it contains the prolog's own messages."),
    ("slurm-low-resource", "has low |Low RealMemory|Low socket|Low CPU|Low Core",
     r"[Nn]ode (?P<node>[\w.-]{1,64}) has low (?P<what>[\w ]{2,30})|reason:? ?Low (?:RealMemory|socket|CPU|Core"
     r"|TmpDisk)\w{0,20}",
     "fail", "a node has less memory, cores or disk than in slurm.conf", "host.inventory",
     ("slurmd -C", "free -g; lscpu", "scontrol show node NODE"),
     "Look for a missing memory module or CPU; if the hardware is complete, correct slurm.conf."),
    ("slurm-hardware", "onfiguration differs from hardware",
     r"Node configuration differs from hardware: ?(?P<what>.{0,200})",
     "fail", "the node's hardware differs from slurm.conf: the controller rejects its registration (INVAL)",
     "host.inventory", ("slurmd -C", "lscpu", "scontrol show node NODE"),
     "Correct the node's line in slurm.conf from `slurmd -C`; look for a changed NPS or sub-NUMA setting of the BIOS, "
     "or for a missing CPU."),
    ("slurm-configuration", "different slurm.conf|slurm.conf|onfiguration",
     r"different slurm\.conf than the slurmctld|(?:error|fatal): .{0,80}(?:slurm|gres|cgroup|topology)\.(?:conf"
     r"|yaml)\b.{0,120}"
     r"|fatal: .{0,40}[Cc]onfiguration.{0,120}",
     "warn", "the configuration of a node differs from the controller's, or has an invalid line",
     "host.services",
     ("md5sum /etc/slurm/*.conf", "scontrol show config | grep -i conf", "scontrol reconfigure"),
     "Give all nodes the same files, or use configless mode; then `scontrol reconfigure`."),
    ("slurm-cgroup", "cgroup",
     r"(?:error|fatal): .{0,160}cgroup.{0,160}|cgroup.{0,80}(?:not mounted|could not be|cannot be|failed)",
     "fail", "slurmd cannot use cgroups: jobs do not start, or are not confined to their GPUs", "host.services",
     ("stat -fc %T /sys/fs/cgroup", "cat /etc/slurm/cgroup.conf", "journalctl -u slurmd | tail -50"),
     "Compare the cgroup version of the kernel with cgroup.conf, and check that the plug-in is installed."),
    ("slurm-plugin", "plugin|Plugin|spank",
     r"(?:error|fatal): .{0,120}(?:[Pp]lugin).{0,120}|error: spank: .{1,160}",
     "fail", "a Slurm plug-in is missing, has the wrong version, or failed", "host.services",
     ("scontrol show config | grep -i plugin", "ls /usr/lib*/slurm", "journalctl -u slurmd | tail -50"),
     "Install the plug-in of exactly this version of Slurm; the preceding lines have SPANK's reason."),
    ("slurm-container", "pyxis|enroot",
     r"(?P<what>pyxis:\s{1,12}\[ERROR\].{1,200})"
     r"|pyxis: (?:failed|couldn't|could not|child \d{1,9} (?:failed|terminated)|container (?:start|exited"
     r"|image)\b.{0,40}|\s{0,8}\[ERROR\]|unable)"
     r".{0,160}|error: pyxis: .{1,160}",
     "fail", "the job's container could not be fetched or started (pyxis, enroot)", "container.state",
     ("srun --container-image=IMAGE true", "cat ~/.config/enroot/.credentials; df -h $ENROOT_CACHE_PATH", "nvidia-smi "
      "-L"),
     "The following lines of enroot's log have the reason: credentials, space, image, or GPU hook."),
    ("slurm-database", "slurmdbd|mysql|DBD|persist_conn|database",
     r"(?:error|fatal): .{0,120}(?:slurmdbd|mysql|DBD|slurm_persist_conn|database|accounting_storage).{0,160}"
     r"|(?:agent queue|DBD agent).{0,40}(?:full|filling)",
     "fail", "the accounting database does not answer: limits and records of jobs are lost", "host.services",
     ("sacctmgr show cluster", "systemctl status slurmdbd mariadb", "sdiag | grep -i dbd"),
     "Check slurmdbd's log, its database, and the disk of both."),
    ("slurm-controller", "not running in primary|backup controller|StateSaveLocation|state_save|Invalid RPC|fatal: ",
     r"slurmctld.{0,80}(?:not running in primary mode|backup controller .{0,40}(?:assum|tak)ing)|(?:error"
     r"|fatal): .{0,80}"
     r"(?:StateSaveLocation|state save|state_save).{0,160}",
     "fail", "the controller lost its primary role, or cannot write its state", "host.services",
     ("scontrol ping", "journalctl -u slurmctld | tail -50", "df -h"), "Check the disk and the log of the controller."),
    ("slurm-requeued", "launch failed requeued held|requeued held|job requeued",
     r"launch failed requeued held|requeued,? held|JobId=\S{1,30} .{0,60}requeued? and held",
     "fail", "a job could not be launched, and is held", "host.services", _JOB,
     "Read slurmd's log on its nodes (prolog, credentials), then run `scontrol release`."),
    ("slurm-job-start", "srun: error|salloc: error|sbatch: error|slurmstepd: error|execve|chdir",
     r"(?:srun|salloc|sbatch|slurmstepd): error: (?:.{0,80}(?:[Uu]nable to (?:confirm|resolve|establish|open"
     r"|allocate)|Application launch failed"
     r"|[Ii]nvalid (?:job|user|account|qos|partition|feature|generic)|couldn't chdir|[Tt]imed out"
     r"|can ?not be satisfied|not be satisfied"
     r"|Job violates|[Ll]aunch failed|[Cc]redential|Zero Bytes|execve)).{0,160}",
     "fail", "Slurm could not start the job or step", "host.services", _SUBMIT,
     "Check what the message names; slurmd's log on that node has details."),
))  # fmt: skip
