"""Contexts of names: prompts, command arguments, messages, bucket addresses."""

# ruff: noqa: E501

from __future__ import annotations

import re

from preflight.redact.public_words import PUBLIC_OWNERS, TOPS

HOST = r"[^\W_][\w.-]{0,252}"
_USER = r"[A-Za-z_][\w.-]{0,63}"
_LIST = r"[^\W_][\w.,:\[\]-]{0,2000}"

#: Text before and after the two names of a prompt: `jdoe@gpu1:~#`, `[jdoe@gpu1 run]$`, `(base) jdoe@gpu1 ~ %`.
_PROMPT = r"(?m)^(?:\([\w. -]{1,40}\)[ ]?)?\[?"
#: The start of a line, or the end of an email's, a launcher's or a log's prefix.
_START = r"(?m)(?:^|(?<=[>|:\]] ))"
_PROMPTED = r"(?=(?:[: ][^\n$#%>]{0,200})?[$#%>](?:[ \t]|$))"
#: Exclude words before an @ that are not users, and words after it that are not hosts: `eth0@if12`, `10.0.0.1@o2ib`,
#: `getty@tty1.service`.
_NO_LINK = r"(?!(?:eth|veth|bond|ib|en|vlan|docker|br|lo|tun|tap|wl|macvlan|ipvlan|team|dummy|virbr|cni|cali|lxc|net|ovs|buildd|mockbuild|pdsh)[\w.]{0,20}@)"
_NO_UNIT = (
    r"(?!if\d|o2ib|tcp\d|kfi\d|tty|sha\d|v\d|[\w-]{1,63}\.(?:service|socket|mount|timer|slice|target|scope|device)\b)"
)
_OF_PEOPLE = r"\b(?:Author|Committer|From|To|Cc|Signed-off-by|Reviewed-by|Reported-by|Tested-by):\s{1,8}"
_KEY = r"\b(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-nistp\d{3}|sk-[\w@.-]{1,60}) (?:AAAA[\w+/=]{1,4000}|\[redacted\])[ \t]"
#: Options of ssh. Each can be matched in only one way: a letter that takes a value has one, except the last.
_WITH_VALUE = "-[bcDEeFIiJLlmOopQRSWw]"
_OPTIONS = rf"(?: {_WITH_VALUE} \S+| (?!{_WITH_VALUE} )-\S+){{0,20}}(?: {_WITH_VALUE})?"
#: Words that follow `ssh` in a sentence.
_OF_SSH = (
    r"(?:exited|to|keys?|connections?|is|was|has|failed|logins?|access|config|from|and|or|into|via|version|client|server|"
    r"sessions?|daemon|ports?|timed|does|not|on|with|for|cannot|could|process|command|the)\b"
)
#: Exclude clients of databases and debuggers, which have prompts as well: `mysql> show tables`.
_NO_SHELL = r"(?!(?:mysql|MariaDB|postgres|sqlite|mongo|influx|redis|gdb|lldb|crash|vtysh)\b)"
_REMOTE = r"\b(?:ssh|scp|sftp|rsync|mosh|ssh-copy-id)\s[^\n@]{0,200}?(?<=[\s\"'])"

#: A name with a number; NO_HOST excludes look-alikes: architectures, versions, NUMA nodes and devices.
_NUMBERED = r"[A-Za-z][A-Za-z_.-]{0,62}\d[\w.-]{0,200}"
NO_HOST = (
    r"(?!(?i:v\d|x86|x64|i\d86|arm|aarch|amd64|ppc64|sha\d|python|mlx|scsi|nvme|numa|cuda|rdmap?\d|roce|eth\d|en[ops]\d|"
    r"ib[ps]?\d{1,3}\b|(?:gpu|cpu|node|host|port|rank|device|core|socket|slot|nic|hca|channel|ring)\d\b|"
    r"(?:any|all|local|self|auto|linux|windows|unix|none|null|true|false|localhost|string|unknown|default)\b))"
)
_IS = r"(?:\\?[\"'])?[ ]{0,3}[:=][ ]{0,3}"
_CLIENT = r"(?:mysql|mysqldump|mariadb|psql|pg_dump|redis-cli|ipmitool|ldapsearch|mongosh?)"

#: Text that must occur, and the context. The groups are named after the kind; a second one of a kind is `user2`.
_WHERE: tuple[tuple[str, str], ...] = (
    # NCCL: `gpu001:4242:4250 [0] NCCL INFO …`; nccl-tests: `#  Rank  0 Group  0 Pid   4242 on gpu001 device  0`
    ("NCCL", r"(?m)(?:^|\s|>:?)(?P<host>HOST):\d{1,10}:\d{1,10} \[\d{1,4}\]"),
    ("+cuda", r"\+cuda\d{1,2}\.\d{1,2}(?P<host>[A-Za-z][\w.-]{0,252}):\d{1,10}:\d{1,10} \["),  # no line feed
    (" Pid ", r"\bPid\s{1,8}\d{1,10} on\s{1,4}(?P<host>HOST) device"),
    # syslog: `Nov 21 03:00:00 gpu001 kernel:`; RFC 5424: `2026-11-21T03:00:00.000000+00:00 gpu001 kernel:`
    (":", _START + r"(?:<\d+>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<host>HOST) [\w./-]+(?:\[\d+\])?:"),
    (":", _START + r"\d{4}-\d\d-\d\dT[\d:.]{8,15}(?:Z|[+-]\d\d:?\d\d) (?P<host>HOST) [\w./-]+(?:\[\d+\])?:"),
    # Slurm: `srun: error: gpu001: task 0: Exited`, `slurmstepd: error: *** STEP 1.0 ON gpu001 CANCELLED`
    ("srun", r"srun: error: (?P<host>HOST(?:\[[\d,-]+\])?): tasks? "),
    (" ON ", r"\*\*\* (?:JOB|STEP) \S{1,40} ON (?P<host>HOST) "),
    # torchrun: `  host      : gpu001.cluster`; arguments of ssh
    ("host", r"(?m)^[^\S\n]{0,200}host\s{1,8}: (?P<host>HOST)$"),
    ("ssh", rf"(?m)(?:^|[#$;&|\"'] ?)ssh{_OPTIONS} (?:[\w.-]+@)?(?P<host>(?!{_OF_SSH})HOST)"),
    ("ssh", rf"\bssh{_OPTIONS}(?: to)? (?:[\w.-]+@)?(?P<host>(?=[\w-]*\d|[\w-]+\.\w)HOST)"),
    # tools of infiniband-diags: `"MF0;leaf01:MQM9790/U1"`, `"gpu001 mlx5_0"`, `CA: gpu001 mlx5_0:`
    (";", r"(?:MF0|SwitchIB Mellanox Technologies|Quantum Mellanox Technologies);(?P<switch>HOST):"),
    ("S-", r'(?m)^Switch\s.{0,60}# "(?P<switch>[A-Za-z](?=[\w.-]{0,252}\d)[\w.-]{1,252})"'),
    ("=(", r'"\s*(?P<switch>[A-Za-z][\w.-]*)"\s+\d+\s+\d+\[[^\]\n]{0,8}\]\s+==\('),
    (" ", r'(?:"|\bCA: )\s*(?P<host>HOST) (?:mlx\d_\d+|HCA-\d+|hfi\d_\d+|bnxt_re\d+|irdma\d+|ib\d)\s*[":]'),
    ("==>", r'==>[^\n"]{0,80}"\s*(?P<switch>[A-Za-z][\w.-]*)"'),
    (" for ", r'\b(?:Errors|Data Counters) for (?:0x[0-9a-fA-F]{1,16} )?"(?P<switch>[A-Za-z][\w.-]*)"'),
    ("Switch: ", r"(?m)^Switch: 0x[0-9a-fA-F]{1,16} (?P<switch>[A-Za-z][\w.-]*):$"),
    # lldpcli, in both kinds of JSON and as text
    ("chassis", r'"chassis":\s*\[\{.{0,600}?"name":\s*\[\{"value":\s*"(?P<switch>HOST)"'),
    ("chassis", r'"chassis":\s*\{\s*"(?P<switch>HOST)":\s*\{'),
    ("SysName", r"SysName:\s{1,20}(?P<switch>HOST)"),
    ("System ", r"(?m)^[ \t-]{0,16}System [Nn]ame\s{0,20}: \"?(?P<host>HOST)\"?[ \t\r]*$"),
    # switches at prompts, as of EOS and NX-OS: `leaf01(config)#show version`; `show version` of NX-OS
    ("sh", rf"(?m)^{_NO_SHELL}(?P<switch>HOST)(?:\([\w-]{{1,60}}\)){{0,2}}[#>] ?sh(?:o|ow)? "),
    ("> sh", r"(?m)^[A-Za-z_][\w.-]{0,31}@(?P<switch>HOST)> ?sh(?:ow?)? "),
    ("lldp-remote", r'"lldp-remote-system-name"\s{0,4}:\s{0,4}\[\s{0,200}\{\s{0,200}"data"\s{0,4}:\s{0,4}"(?P<host>HOST)"'),
    ("Nexus", r"(?m)^[ \t]{1,8}Device name: (?P<switch>HOST)[ \t\r]*$"),
    # serial numbers of modules, GPUs and boards
    ("erial", r"""(?i)serial(?:[ _]?(?:number|no\.?|num))?(?:\\?["'])?(?:\s{0,40}[:=>]\s{0,3}| is )(?:\\?["'])?"""
     r"(?P<serial>[\w-]{5,64})"),
    ("SN", r"\b(?:Vendor SN|SN|S/N)\s{0,40}[:=]\s{0,3}(?P<serial>[\w-]{5,64})"),
    ("endor", r"""(?i)vendor_?sn\\?["']\s{0,3}:\s{0,3}\\?["'](?P<serial>[\w-]{5,64})"""),
    ("oard", r"""(?i)\bproc(?:essor)?[ _]board[ _]id\b[\\"' :]{1,8}(?P<serial>[\w-]{5,64})"""),
    # people
    ("uid=", r"\b(?:uid|gid|groups)=\d+\((?P<user>[^\W_][\w.-]{0,63})\)"),
    ("@", r"(?<![\w.+-])(?P<user>[^\W_][\w.+-]{0,63})@(?![\w.-]{1,100}\.(?:service|socket|mount|timer|slice|target|scope|device)\b)(?=[A-Za-z][\w-]*\.[A-Za-z])"),
    (" user", r"\b(?:for|of) user (?P<user>[^\W_][\w.-]{0,63})"),
    # users at prompts and in commands; the second name is the host
    ("@", _PROMPT + rf"(?P<user>{_USER})@{_NO_UNIT}(?P<host>{HOST}){_PROMPTED}"),
    ("@", _REMOTE + rf"(?P<user>{_USER})@(?P<host>{HOST})"),
    ("@", rf"(?<![\w.+@/:-]){_NO_LINK}(?P<user>{_USER})@{_NO_UNIT}(?=[A-Za-z][A-Za-z]*[\w-]{{0,62}}\d)"),
    ("@", rf"(?<![\w.+@/:-]){_NO_LINK}{_USER}@{_NO_UNIT}(?P<host>[A-Za-z][A-Za-z_-]{{0,62}}\d[\w-]{{0,62}})(?![\w.]*@)"),
    ("AAAA", _KEY + rf"(?P<user>{_USER})(?:@(?P<host>{HOST}))?"),
    ("://", rf"://(?P<user>{_USER})(?=(?::[^\s/@]{{0,256}})?@)"),
    (" from ", rf"\b(?:Accepted|Failed|Postponed) [\w/-]{{1,40}} for (?:invalid user )?(?P<user>{_USER}) from "),
    ("sudo", rf"\bsudo(?:\[\d{{1,10}}\])?:\s{{1,8}}(?P<user>{_USER}) : "),
    ("sudoers", rf"(?P<user>(?<![\w.-]){_USER}) is not in the sudoers"),
    ("ser ", rf"\b(?:(?:[Bb]y|as|from|with|[Ii]nvalid) user|[Ll]ogin for) (?P<user>{_USER})(?=[\s(,.;'\"]|$)"),
    ("ogged in as", rf"[Ll]ogged in as:? (?P<user>{_USER})"),
    ("-", rf"(?<!\S)--?(?:user|username|uid|login|mail-user|owner)[= ][\"']?(?P<user>{_USER})(?![\w=/])"),
    ("-u", rf"\b(?:docker|podman|curl|helm|skopeo|oras)\s[^\n]{{0,200}}?-u[ ]?[\"']?(?P<user>{_USER})"),
    ("login", rf"\blogin\s{{1,8}}(?P<user>{_USER})\s{{1,8}}password\b"),
    ("machine", rf"\bmachine\s{{1,8}}(?P<host>{HOST})\s{{1,8}}(?:login|password)\b"),
    ("~", r"(?<![\w~/.])~(?P<user>[a-z_][\w.-]{1,31})(?=/)"),
    ("~", r"\b(?:cd|ls|du|chown|cat|ll) (?:-\w{1,8} )?~(?P<user>[a-z_][\w.-]{1,31})"),
    (":/", rf"(?<![\w.:/-])(?P<user>{_USER}):[^:\n]{{0,200}}:\d{{1,10}}:\d{{1,10}}:(?P<person>[^:\n]{{1,200}})?:/"),
    ("::", rf"(?m)^(?P<user>{_USER}):(?:\$[^\s:]{{1,300}}|\[redacted\]|[!*]{{1,2}}):\d{{0,6}}:\d{{0,6}}:"),
    ("<", _OF_PEOPLE + r"(?P<person>[^\n<>@:]{1,80}?) <[^\n<>\s]{1,200}@"),
    # ls -l, who
    ("r", rf"(?<!\S)[-dlbcps][-rwxsStT]{{9}}[.+@]?\s{{1,8}}\d{{1,8}}\s{{1,8}}(?:(?P<user>{_USER})|\S{{1,64}})(?:\s{{1,8}}(?P<user2>{_USER}))?\s"),
    ("", rf"(?<![\w.:@/-])(?!(?i:on)\b)(?P<user>{_USER})\s{{1,40}}(?:pts/\d{{1,5}}|tty\w{{1,6}}|:\d)\s"),
    ("(", rf"(?<!\S)\S{{1,64}}\s{{1,40}}(?:pts/\d{{1,5}}|tty\w{{1,6}}|:\d)\s[^\n(]{{1,80}}\((?P<host>[A-Za-z]{HOST[6:]})\)"),
    ("ession ", rf"\b[Ss]ession \S{{1,12}} (?:of|for) [Uu]ser (?P<user>{_USER}?)(?=[.,]?(?:\s|$))"),
    # ssh_config
    ("User ", rf"(?m)^[ \t]{{1,16}}User[ \t]{{1,8}}(?P<user>{_USER})[ \t\r]*$"),
    ("HostName ", r"(?m)^[ \t]{0,16}HostName[ \t]{1,8}(?P<host>HOST)[ \t\r]*$"),
    ("Host ", r"(?m)^Host[ \t]{1,8}(?P<host>HOST)[ \t\r]*\n(?=[ \t]{1,16}(?:HostName|User|Port|ProxyJump|IdentityFile)[ \t])"),
    # hosts in commands and their output
    (" (", r"\b(?:PING|traceroute to) (?P<host>HOST) \("),
    # Open MPI: `[gpu001:4242] *** Process received signal ***`; UCX: `[1760000000.123456] [gpu001:4242 :0]`
    ("[", r"(?m)^(?:\[\d{9,11}\.\d{1,9}\] )?\[(?!mlx|rank|cuda|[0-9a-f]{4}:[0-9a-f]{4}[]])(?P<host>HOST):\d{3,8}(?:[ ]{0,3}:[a-z]?\d{1,4})?\] "),
    ("rsync", rf"\brsync\s[^\n:]{{0,200}}?\s(?P<host>{HOST}):/"),
    ("Linux ", rf"\bLinux (?!version)(?P<host>{HOST}) \d{{1,3}}\.\d{{1,4}}\.\d"),
    (": ", _START + rf"\s{{0,40}}(?:(?:Static|Transient|Pretty) hostname|Host|Server|hostname)\s{{0,8}}:\s{{1,8}}(?P<host>{HOST})\s{{0,8}}$"),
    ("Node:", _START + rf"\s{{0,40}}Node:[ \t]{{1,40}}(?P<host>[A-Za-z]{HOST[6:]}?)(?:/[0-9a-fA-F.:]{{3,40}})?[ \t\r]{{0,8}}$"),
    (" host ", rf"\b(?:to|from|for|on) host (?:(?P<host>{HOST}?)(?=:? port\b))"),
    (" host ", r"\b(?:to|from|for|on) host (?P<host>[A-Za-z][A-Za-z_.-]{0,200}\d[\w.-]{0,200})"),
    ("-", rf"(?:\b(?:srun|salloc|sbatch|sinfo|squeue|sattach)\b|#SBATCH\b)[^\n]{{0,300}}?\s-[wx][ =]?(?P<host>{_LIST})"),
    ("-", r"(?:\b(?:srun|salloc|sbatch)\b|#SBATCH\b)[^\n]{0,300}?\s-A[ =]?(?P<name>[^\W_][\w.-]{0,63})"),
    ("-", rf"\b(?:pdsh|clush|nodeset|clubak)\b[^\n]{{0,300}}?\s-[abLqRS]{{0,4}}[wx][ =]?(?P<host>{_LIST})"),
    ("-H", rf"\b(?:mpirun|mpiexec|orterun|prterun|horovodrun|mpiexec\.hydra)\b[^\n]{{0,300}}?\s-H[ =]?(?P<host>{_LIST})"),
    ("-", rf"(?<!\S)--?(?:nodelist|exclude|hosts?|node|nodes|nodename|master[-_]addr|submit-host|rdzv[-_]endpoint)[= ][\"']?(?P<host>[A-Za-z]{_LIST[6:]})"),
    ("-J", rf"\bssh\b[^\n]{{0,200}}?\s-J ?(?:{_USER}@)?(?P<host>{HOST})"),
    ("slots=", rf"(?m)^\s{{0,8}}(?P<host>{HOST})\s{{1,40}}slots=\d"),
    ("://", r"\b[a-z][a-z0-9+.-]{1,15}://(?:[^\s/@]{0,300}@)?(?P<host>[A-Za-z][A-Za-z_-]{0,62}\d[\w-]{0,62})(?=[:/]|\s|$)"),
    # Slurm and Kubernetes messages about nodes
    ("Comment=", r"(?m)^\s{2,8}(?:Admin|System)?Comment=(?P<name>[^\s(][^\s]{0,200})"),
    ("salloc: Node", rf"\bsalloc: Nodes? (?P<host>{_LIST}) (?:is|are) ready"),
    (" node", rf"\b(?:on|show|describe|delete|get|taint|label) nodes? (?P<host>(?!node\d\b){_NUMBERED})"),
    ("kubectl", rf"\bkubectl (?:cordon|uncordon|drain) (?P<host>{HOST})"),
    ("ode", rf"(?<![\w/.])nodes?/(?P<host>(?!node\d\b){_NUMBERED})(?=[\s,:]|$)"),
    ("T", rf"(?m)[ ](?P<user>{_USER})(?:\(\d{{1,10}}\))?[ ]{{2,40}}\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d[ ](?P<host>[A-Za-z]{_LIST[6:]})[ \t\r]*$"),
    # Ansible
    ("[", rf"(?m)^(?:fatal|ok|changed|skipping|failed|unreachable): \[(?P<host>{HOST})[\] ]"),
    ("ok=", rf"(?m)^(?P<host>{HOST})\s{{1,60}}: ok=\d"),
    ("ansible_", rf"(?m)^(?P<host>{HOST})\s{{1,20}}ansible_\w+="),
    ("ansible_", rf"(?m)^\s{{1,20}}(?P<host>{HOST}):[ \t\r]*\n\s{{1,40}}ansible_\w+:"),
    # output of ssh, sudo and PyTorch
    ("ermanently added", rf"Permanently added '\[?(?P<host>{HOST})"),
    (": ssh: ", rf"(?m)^(?P<host>{HOST}): ssh: "),
    ("", rf"(?i)\buser(?:name)?[ ]?[/,&+:][ ]?pass\w{{0,6}}[ \t]{{0,8}}[:=][ \t]{{0,8}}(?P<user>{_USER})(?=[ \t]{{0,4}}[/,:])"),
    ("resolve host", rf"resolve host(?:name)?:? [\"']?(?P<host>{HOST})"),
    ("addresses of", rf"network addresses of \(\[?(?P<host>{HOST})"),
    ("rdzv_endpoint", rf"(?m)^\s{{0,8}}rdzv_endpoint\s{{1,8}}: (?P<host>[A-Za-z]{HOST[6:]})"),
    (" by ", rf"\bsession (?:opened|closed) for user \S{{1,64}} by (?P<user>{_USER})\(uid"),
    ("assword for '", rf"[Pp]assword for '(?P<user>{_USER})'"),
    ("ogged in as", r"[Ll]ogged in as:? [\w.-]{1,64} \((?P<name>[\w.-]{1,64})\)"),
    ("mail/", rf"/var/(?:spool/)?mail/(?P<user>{_USER})"),
    ("deepspeed", r"(?:--(?:include|exclude)[= ][\"']?|(?<=\d)@)(?P<host>[A-Za-z][\w.-]{0,252}):\d[\d,]{0,60}(?=[@\s\"']|$)"),
    ("<", rf"(?m)^<\d{{1,3}}>\d{{1,2}} \d{{4}}-\d\d-\d\dT[\d:.]{{8,15}}(?:Z|[+-]\d\d:\d\d) (?P<host>{HOST}) "),
    (":", rf"(?m)^(?P<host>{_NUMBERED}):[~/][^\n$#>]{{0,200}} [#>] "),
    # servers in commands; file systems
    ("-", rf"\b{_CLIENT}\b[^\n|;]{{0,200}}?\s-[hH] ?(?P<host>{HOST})"),
    ("-", rf"\b{_CLIENT}\b[^\n|;]{{0,200}}?\s-[uU] ?(?P<user>{_USER})"),
    (":/", rf"(?m)^(?P<host>[A-Za-z]{HOST[6:]}):/\S{{0,300}}\s{{1,40}}(?:on\s)?/\S{{0,300}}\s{{1,40}}(?:type\s)?(?:nfs4?|ceph|glusterfs)\b"),
    ("cifs", rf"(?<![:\w/])//(?P<host>{HOST})/"),
    (".", rf"(?m)^(?:\d{{1,3}}\.){{3}}\d{{1,3}}[ \t]{{1,20}}{_NO_LINK[:-2]})(?P<host>(?=\S{{0,200}}[\d.])[A-Za-z]{HOST[6:]})(?:[ \t]{{1,20}}(?P<host2>[A-Za-z]{HOST[6:]}))?(?:[ \t]{{1,20}}(?P<host3>[A-Za-z]{HOST[6:]}))?[ \t\r]*$"),
    # a setting: `host = "gpu001"`, `node: gpu-17`; a name without a number must be in quotes
    ("", rf"(?i)(?<![\w.-])(?:host|node|server|worker|machine){_IS}(?:\\?[\"'])?(?P<host>{NO_HOST}{_NUMBERED})(?=\\?[\"'\s,;:}})\]]|$)"),
    ("", rf"(?i)(?<![\w.-])host(?:name)?{_IS}\\?[\"'](?P<host>{NO_HOST}[A-Za-z][\w-]{{2,62}})\\?[\"']"),
    # accounts and machines of clouds, machine IDs of systemd, serial numbers of drives
    ("arn:aws", r"\barn:aws[\w-]{0,10}:[\w-]{0,20}:[\w-]{0,20}:(?P<serial>\d{12}):(?:(?:user|role|assumed-role|instance-profile)/(?P<user>[\w+=.@-]{1,64}))?"),
    ("AccountName=", r"AccountName=(?P<name>[a-z0-9]{3,24})"),
    ("i-", r"(?<![\w-])i-(?P<serial>[0-9a-f]{17})(?![\w-])"),
    (" ID:", r"\b(?:Machine|Boot) ID: (?P<serial>[0-9a-f]{32})\b"),
    ("nvme", r"(?m)^(?:/dev/)?nvme\d{1,4}n\d{1,4}\s{1,20}(?:/dev/ng\d{1,4}n\d{1,4}\s{1,20})?(?P<serial>[0-9A-Z]{10,24})\s"),
    # buckets and accounts of object stores and of Weights & Biases
    ("://", r"\b(?:s3[an]?|gs|gcs|r2|oss|cos|swift|abfss?|wasbs?|adl)://(?P<name>[^\W_][\w-]{1,62})(?=[/@.\s\"',;)]|$)"),
    ("://", r"\b(?:s3[an]?|gs|gcs|r2|oss|cos|swift)://(?P<name>[^\W_][\w.-]{2,62})"),
    ("://", r"://(?P<name>[^\W_][\w-]{1,62})\.s3[\w.-]{0,40}\.amazonaws\.com"),
    ("amazonaws", r"//s3[\w.-]{0,40}amazonaws\.com/(?P<name>[^\W_][\w.-]{2,62})"),
    ("google", r"//storage\.(?:googleapis|cloud\.google)\.com/(?P<name>[^\W_][\w.-]{2,62})"),
    (".core.windows.net", r"(?:@|//)(?P<name>[^\W_][\w-]{1,62})\.(?:blob|dfs|file|queue|table)\.core\.windows\.net"),
    (".core.windows.net", r"\.(?:blob|dfs|file|queue|table)\.core\.windows\.net/(?P<name>[^\W_][\w-]{2,62})"),
    ("wandb.ai/", r"wandb\.ai/(?!authorize|settings|home|site\b)(?P<name>[\w.-]{2,64})(?=/|\s|$)"),
    ("wandb.ai/", r"wandb\.ai/[\w.-]{2,64}/(?P<name>[\w-]{2,64})"),
    # messages about a node from Slurm, ssh, ping and remote shells
    ("ode", rf"\b[Nn]odes? (?P<host>(?!node\d\b){_NUMBERED}(?:\[[\d,-]{{1,200}}\])?) (?:not responding|is |are |has |have |set(?:ting)? |state |failed|went |did )"),
    ("Nodes=", rf"\bNodes=(?P<host>[A-Za-z]{_LIST[6:]})"),
    ("down", rf"(?m)^(?P<host>{NO_HOST}{_NUMBERED})\s{{1,40}}\d{{1,6}}\s{{1,8}}(?:down|drain|fail|idle|mix|alloc|maint|unk)\w{{0,10}}[*~#!%$@^-]?\s"),
    ("onnect", rf"\b[Cc]onnect(?:ion|ed|ing) (?:closed by|reset by|refused by|timed out with|to|with|from) (?:(?:peer|remote host) )?\[?(?P<host>{NO_HOST}{_NUMBERED}?)(?=\]?:\d|\]? (?:port|closed|failed|refused|timed|\()|[.\s,]|$)"),
    ("bytes from", rf"\bbytes from (?P<host>[A-Za-z]{HOST[6:]}) \("),
    ("verification failed", rf"verification failed for (?P<host>{_NUMBERED})"),
    ("not known", rf"(?:service not known|unknown host):? (?P<host>{_NUMBERED})"),
    ("gaierror", rf"gaierror:? (?P<host>{NO_HOST}{_NUMBERED})"),
    ("-", rf"\b(?:nc|ncat|telnet|iperf3?|netperf|qperf|ib_(?:write|read|send|atomic)_(?:bw|lat)|rping|ucx_perftest)\b(?:[^\n|;]{{0,200}}?\s)(?<!-[dixB] )(?<!dev )(?P<host>{NO_HOST}{_NUMBERED})(?=\s|$)"),
    ("telnet ", rf"\btelnet (?P<host>{_NUMBERED})"),
    ("-l ", rf"\bssh\b[^\n]{{0,200}}?\s-l ?(?P<user>{_USER})"),
    ("-", rf"(?<!\S)--?(?:address|main_process_ip|head[-_]node|head[-_]address|scheduler|server|target)[= ][\"']?(?P<host>{NO_HOST}{_NUMBERED}?)(?=[:\s\"',]|$)"),
    (" | ", rf"(?m)^(?P<host>{NO_HOST}[A-Za-z]{HOST[6:]}) \| (?:CHANGED|SUCCESS|FAILED|UNREACHABLE)\b"),
    ("]", rf"(?m)\[(?:SUCCESS|FAILURE)\] (?P<host>[A-Za-z]{HOST[6:]})(?=\s|$)"),
    ("]", rf"(?m)^\[(?P<host>{NO_HOST}{_NUMBERED})\] (?=SUCCESS\b|FAILURE\b|out:|err:|\d{{4}}-\d\d-\d\d[ T])"),
    (": ", rf"(?m)^(?P<host>{NO_HOST}{_NUMBERED}): (?=(?:-?bash|sh|zsh): |[\w./-]{{1,60}}: (?:command )?not found)"),
    # Intel MPI, MVAPICH, and output of ranks
    ("mpi_rank_", rf"(?m)^\[(?P<host>{HOST}):mpi_rank_\d"),
    ("MPI startup", rf"MPI startup\(\):\s{{1,8}}\d{{1,8}}\s{{1,8}}\d{{1,10}}\s{{1,12}}(?P<host>{HOST})(?=\s|$)"),
    (" on ", rf"\b(?:[Rr]ank \d{{1,8}}|nvidia-smi[\w -]{{0,40}}|task \d{{1,8}}|pid \d{{1,10}}) on (?P<host>{NO_HOST}{_NUMBERED})(?=[\s:,.]|$)"),
    ("]: ", rf"\[rank\d{{1,8}}\]: (?P<host>{NO_HOST}{_NUMBERED}): "),
    (":", rf"(?m)^\d{{4}}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})? (?P<host>{NO_HOST}{_NUMBERED}) (?=[A-Z]{{4,8}}\b)"),
    (" kernel: ", rf"(?m)^(?P<host>{NO_HOST}{_NUMBERED}) kernel: "),
    # Kubernetes, Prometheus
    (' node ', rf'\bnode \\?"(?P<host>[A-Za-z]{HOST[6:]})\\?"'),
    ("assigned ", rf"\b[Ss]uccessfully assigned \S{{1,300}} to (?P<host>[A-Za-z]{HOST[6:]})"),
    ("instance=", rf"\binstance=\\?\"(?P<host>[A-Za-z]{HOST[6:]}):\d"),
    ("HCA-", rf"(?m)^\s{{0,8}}(?P<host>{NO_HOST}{_NUMBERED}) (?:HCA-\d{{1,2}}|mlx5_\d{{1,3}})(?=\s*$)"),
    # users in commands of administrators and in logs
    ("sudo ", rf"\bsudo(?: -[A-Zbeknv]{{1,4}}){{0,4}} -\w{{0,3}}u ?(?P<user>{_USER})"),
    ("su ", rf"(?m)(?:^|[;&|$#>] ?|\bsudo )su (?:- |-l |--login )?(?P<user>{_USER})(?=\s|$)"),
    ("-u", rf"\b(?:squeue|sacct|scancel|sreport|sshare|sprio|crontab|ps|pkill|pgrep|loginctl|quota)\b[^\n|;]{{0,200}}?\s-u ?(?P<user>{_USER})"),
    ("ch", rf"\bch(?:own|grp)(?: -{{1,2}}[\w-]{{1,20}}){{0,4}} (?P<user>{_USER})(?::(?P<user2>{_USER})?)?(?=\s)"),
    ("user", rf"\b(?:useradd|userdel|usermod|adduser|deluser)\b(?: -{{1,2}}[\w-]{{1,20}}(?:[ =][^\s-]\S{{0,100}})?){{0,8}}? (?P<user>{_USER})(?=\s*(?:$|[;&|\n]))"),
    (" ", r"(?m)(?:^|[$#>] )(?:id|finger|last|passwd|groups|chage -l) (?P<user>[a-z_][\w.-]{0,63})(?=\s*$)"),
    ("crontab for ", rf"\bcrontab for (?P<user>{_USER})"),
    ("user ", rf"\b(?:[Jj]ob \S{{1,20}}|UID \d{{1,10}},|[Ss]ubmitted) (?:by )?user (?P<user>{_USER})"),
    ("ubmitted by", rf"\b[Ss]ubmitted by:? (?P<user>{_USER})"),
    ("tty", rf"\b(?i:LOGIN ON) \w{{1,12}} (?i:BY) (?P<user>{_USER})"),
    ("su", rf"\bsu(?:\[\d{{1,10}}\])?: (?:\(to \S{{1,64}}\)|FAILED SU \(to \S{{1,64}}\)) (?P<user>{_USER}) on "),
    ("Slice of", rf"\bUser Slice of (?:UID \d|(?P<user>{_USER}?)(?=[.,]?(?:\s|$)))"),
    (" CMD", rf"\b(?:CRON|cron|crond)(?:\[\d{{1,10}}\])?: \((?P<user>{_USER})\) "),
    ("OwnerName", rf"\bOwner(?:Name)?[=:] ?(?P<user>{_USER})"),
    ("owner:", rf"(?m)^[ \t]{{0,40}}owner:[ \t]{{1,8}}[\"']?(?P<user>{_USER})[\"']?[ \t\r]*$"),
    ("Users", rf"\b[A-Za-z]:\\{{1,2}}Users\\{{1,2}}(?P<user>{_USER})"),
    (".", rf"(?m)^[ \t]{{0,12}}\d{{1,10}}[ \t]{{1,8}}(?P<user>{_USER}\+?)[ \t]{{1,20}}(?:-?\d{{1,3}}|rt)[ \t]{{1,8}}-?\d{{1,3}}(?:[ \t]{{1,20}}[\d.]{{1,20}}[kmgtp]?){{3}}[ \t]{{1,8}}[A-Z][ \t]"),
    (".", rf"(?m)^(?P<user>{_USER})\+?[ \t]{{1,20}}\d{{1,10}}(?:[ \t]{{1,8}}\d{{1,6}}\.\d){{2}}(?:[ \t]{{1,20}}\d{{1,15}}){{2}}[ \t]{{1,8}}(?:\?|pts/\d|tty)"),
    ("/home-", rf"/home-(?P<user>{_USER})(?=[/\s:\"']|$)"),
    ("cron/", rf"/var/spool/cron/(?:crontabs/)?(?P<user>{_USER})"),
    # organisations and users on code hosts; buckets after a key
    (".co", rf"\b(?:github|gitlab|bitbucket|huggingface)\.com?/(?:datasets/|spaces/|orgs/)?(?!(?i:{PUBLIC_OWNERS})/)(?P<name>[A-Za-z0-9][\w.-]{{1,63}})(?=/[\w.-])"),
    ("hf://", rf"\bhf://(?:datasets/|spaces/)?(?!(?i:{PUBLIC_OWNERS})/)(?P<name>[A-Za-z0-9][\w.-]{{1,63}})(?=/)"),
    ("git@", r"\bgit@[\w.-]{1,100}:(?P<name>[\w.-]{2,64})/(?P<name2>[\w-]{2,64})"),
    ("bucket", r"(?i)(?<![a-z])(?:--)?(?:s3[_-]|gcs[_-]|checkpoint[_-]|ckpt[_-])?bucket(?:[_-]?name)?(?:\\?[\"'])?(?:[ ]?[:=][ ]?|[ ](?=[\w.-]*[-.]))(?:\\?[\"'])?(?P<name>[a-z0-9][a-z0-9.-]{2,62})(?=[\s\"',;/]|$)"),
    ("BUCKET", r"(?i)(?<![a-z])(?:--)?(?:s3[_-]|gcs[_-]|checkpoint[_-]|ckpt[_-])?bucket(?:[_-]?name)?(?:\\?[\"'])?(?:[ ]?[:=][ ]?|[ ](?=[\w.-]*[-.]))(?:\\?[\"'])?(?P<name>[a-z0-9][a-z0-9.-]{2,62})(?=[\s\"',;/]|$)"),
    # Lustre and BeeGFS
    ("@", rf"(?<![\w.@-])(?P<host>[A-Za-z]{HOST[6:]})@(?:o2ib|tcp|kfi)\d{{0,2}}\b"),
    ("sysMgmtdHost", rf"\bsysMgmtdHost\s{{0,8}}=\s{{0,8}}(?P<host>{HOST})"),
)  # fmt: skip
PLACES = tuple((sign, re.compile(where.replace("HOST", HOST))) for sign, where in _WHERE)
#: A value of a key `host` or `node` whose form identifies it as a name.
NUMBERED = re.compile(NO_HOST + _NUMBERED)

#: The owner of a folder in one of these folders: `/home/jdoe`, `/scratch/users/jdoe`.
OWNER = re.compile(rf"/(?:{TOPS})/(?=([^\s/\"'\\:;,<>()\[\]{{}}|&=*$]+)(/?))")
