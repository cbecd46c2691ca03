"""Places by the form of the line, or of what stands around: a prompt, an argument of a command, a bucket's address."""

# ruff: noqa: E501

from __future__ import annotations

import re

from preflight.redact.words import TOPS

HOST = r"[^\W_][\w.-]{0,252}"
_USER = r"[A-Za-z_][\w.-]{0,63}"
_LIST = r"[^\W_][\w.,:\[\]-]{0,2000}"

#: `jdoe@gpu1:~#`, `[jdoe@gpu1 run]$`, `(base) jdoe@gpu1 ~ %`: what stands before and after the two names.
_PROMPT = r"(?m)^(?:\([\w. -]{1,40}\)[ ]?)?\[?"
#: Where a line begins, also behind the mark of a mail, a launcher or a log.
_START = r"(?m)(?:^|(?<=[>|:\]] ))"
_PROMPTED = r"(?=(?:[: ][^\n$#%>]{0,200})?[$#%>](?:[ \t]|$))"
#: What stands before an @ and is no user, and after it and is no host: `eth0@if12`, `10.0.0.1@o2ib`, `getty@tty1.service`.
_NO_LINK = r"(?!(?:eth|veth|bond|ib|en|vlan|docker|br|lo|tun|tap|wl|macvlan|ipvlan|team|dummy|virbr|cni|cali|lxc|net|ovs)[\w.]{0,20}@)"
_NO_UNIT = (
    r"(?!if\d|o2ib|tcp\d|kfi\d|tty|sha\d|v\d|[\w-]{1,63}\.(?:service|socket|mount|timer|slice|target|scope|device)\b)"
)
_OF_PEOPLE = r"\b(?:Author|Committer|From|To|Cc|Signed-off-by|Reviewed-by|Reported-by|Tested-by):\s{1,8}"
_KEY = r"\b(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-nistp\d{3}|sk-[\w@.-]{1,60}) (?:AAAA[\w+/=]{1,4000}|\[redacted\])[ \t]"
_REMOTE = r"\b(?:ssh|scp|sftp|rsync|mosh|ssh-copy-id)\s[^\n@]{0,200}?(?<=[\s\"'])"

#: What has to be in the text, the place, what stands there.
_WHERE: tuple[tuple[str, str, str], ...] = (
    # NCCL: `gpu001:4242:4250 [0] NCCL INFO …`; nccl-tests: `#  Rank  0 Group  0 Pid   4242 on gpu001 device  0`
    ("NCCL", r"(?m)(?:^|\s)(?P<name>HOST):\d{1,10}:\d{1,10} \[\d{1,4}\]", "host"),
    ("+cuda", r"\+cuda\d{1,2}\.\d{1,2}(?P<name>[A-Za-z][\w.-]{0,252}):\d{1,10}:\d{1,10} \[", "host"),  # no line feed
    (" Pid ", r"\bPid\s{1,8}\d{1,10} on\s{1,4}(?P<name>HOST) device", "host"),
    # syslog: `Nov 21 03:00:00 gpu001 kernel:`; RFC 5424: `2026-11-21T03:00:00.000000+00:00 gpu001 kernel:`
    (":", _START + r"(?:<\d+>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<name>HOST) [\w./-]+(?:\[\d+\])?:", "host"),
    (":", _START + r"\d{4}-\d\d-\d\dT[\d:.]{8,15}(?:Z|[+-]\d\d:?\d\d) (?P<name>HOST) [\w./-]+(?:\[\d+\])?:", "host"),
    # Slurm: `srun: error: gpu001: task 0: Exited`, `slurmstepd: error: *** STEP 1.0 ON gpu001 CANCELLED`
    ("srun", r"srun: error: (?P<name>HOST(?:\[[\d,-]+\])?): tasks? ", "host"),
    (" ON ", r"\*\*\* (?:JOB|STEP) \S{1,40} ON (?P<name>HOST) ", "host"),
    # torchrun: `  host      : gpu001.cluster`; ssh
    ("host", r"(?m)^\s*host\s{1,8}: (?P<name>HOST)$", "host"),
    ("ssh", r"\bssh(?: -[bcDEeFIiJLlmOopQRSWw] \S+| -\S+){0,20} (?:[\w.-]+@)?(?P<name>HOST)", "host"),
    # the tools of infiniband-diags: `"MF0;leaf01:MQM9790/U1"`, `"gpu001 mlx5_0"`, `CA: gpu001 mlx5_0:`
    (";", r"(?:MF0|SwitchIB Mellanox Technologies|Quantum Mellanox Technologies);(?P<name>HOST):", "switch"),
    ("S-", r'(?m)^Switch\s.{0,60}# "(?P<name>[A-Za-z][^\W_]*[\w.-]*\d[\w.-]*)"', "switch"),
    ("=(", r'"\s*(?P<name>[A-Za-z][\w.-]*)"\s+\d+\s+\d+\[[^\]\n]{0,8}\]\s+==\(', "switch"),
    (" ", r'(?:"|\bCA: )\s*(?P<name>HOST) (?:mlx\d_\d+|HCA-\d+|hfi\d_\d+|bnxt_re\d+|irdma\d+|ib\d)\s*[":]', "host"),
    ("==>", r'==>[^\n"]{0,80}"\s*(?P<name>[A-Za-z][\w.-]*)"', "switch"),
    (" for ", r'\b(?:Errors|Data Counters) for (?:0x[0-9a-fA-F]{1,16} )?"(?P<name>[A-Za-z][\w.-]*)"', "switch"),
    ("Switch: ", r"(?m)^Switch: 0x[0-9a-fA-F]{1,16} (?P<name>[A-Za-z][\w.-]*):$", "switch"),
    # lldpcli, as JSON of either kind and as text
    ("chassis", r'"chassis":\s*\[\{.{0,600}?"name":\s*\[\{"value":\s*"(?P<name>HOST)"', "switch"),
    ("chassis", r'"chassis":\s*\{\s*"(?P<name>HOST)":\s*\{', "switch"),
    ("SysName", r"SysName:\s{1,20}(?P<name>HOST)", "switch"),
    # serial numbers, of modules, GPUs, boards
    ("erial", r"""(?i)serial(?:[ _]?(?:number|no\.?|num))?(?:\\?["'])?\s{0,40}[:=>]\s{0,3}(?:\\?["'])?"""
     r"(?P<name>[\w-]{5,64})", "serial"),
    ("SN", r"\b(?:Vendor SN|SN|S/N)\s{0,40}[:=]\s{0,3}(?P<name>[\w-]{5,64})", "serial"),
    # people
    ("uid=", r"\b(?:uid|gid|groups)=\d+\((?P<name>[^\W_][\w.-]{0,63})\)", "user"),
    ("@", r"(?<![\w.+-])(?P<name>[^\W_][\w.+-]{0,63})@(?![\w.-]{1,100}\.(?:service|socket|mount|timer|slice|target|scope|device)\b)(?=[A-Za-z][\w-]*\.[A-Za-z])", "user"),
    (" user", r"\b(?:for|of) user (?P<name>[^\W_][\w.-]{0,63})", "user"),
    # people at prompts and in commands; the second of two names is that of the host
    ("@", _PROMPT + rf"(?P<name>{_USER})(?=@{_NO_UNIT}{HOST}{_PROMPTED[3:-1]})", "user"),
    ("@", _PROMPT + rf"{_USER}@{_NO_UNIT}(?P<name>{HOST}){_PROMPTED}", "host"),
    ("@", _REMOTE + rf"(?P<name>{_USER})@(?=[A-Za-z])", "user"),
    ("@", _REMOTE + rf"{_USER}@(?P<name>{HOST})", "host"),
    ("@", rf"(?<![\w.+@/:-]){_NO_LINK}(?P<name>{_USER})@{_NO_UNIT}(?=[A-Za-z][A-Za-z]*[\w-]{{0,62}}\d)", "user"),
    ("@", rf"(?<![\w.+@/:-]){_NO_LINK}{_USER}@{_NO_UNIT}(?P<name>[A-Za-z][A-Za-z_-]{{0,62}}\d[\w-]{{0,62}})(?![\w.]*@)", "host"),
    ("AAAA", _KEY + rf"(?P<name>{_USER})", "user"),
    ("AAAA", _KEY + rf"{_USER}@(?P<name>{HOST})", "host"),
    ("://", rf"://(?P<name>{_USER})(?=(?::[^\s/@]{{0,256}})?@)", "user"),
    (" from ", rf"\b(?:Accepted|Failed|Postponed) [\w/-]{{1,40}} for (?:invalid user )?(?P<name>{_USER}) from ", "user"),
    ("sudo", rf"\bsudo(?:\[\d{{1,10}}\])?:\s{{1,8}}(?P<name>{_USER}) : ", "user"),
    ("sudoers", rf"(?P<name>(?<![\w.-]){_USER}) is not in the sudoers", "user"),
    ("ser ", rf"\b(?:(?:[Bb]y|as|from|[Ii]nvalid) user|[Ll]ogin for) (?P<name>{_USER})(?=[\s(,.;'\"]|$)", "user"),
    ("ogged in as", rf"[Ll]ogged in as:? (?P<name>{_USER})", "user"),
    ("-", rf"(?<!\S)--?(?:user|username|uid|login|mail-user|owner)[= ][\"']?(?P<name>{_USER})(?![\w=/])", "user"),
    ("-u", rf"\b(?:docker|podman|curl|helm|skopeo|oras)\s[^\n]{{0,200}}?-u[ ]?[\"']?(?P<name>{_USER})", "user"),
    ("login", rf"\blogin\s{{1,8}}(?P<name>{_USER})\s{{1,8}}password\b", "user"),
    ("machine", rf"\bmachine\s{{1,8}}(?P<name>{HOST})\s{{1,8}}(?:login|password)\b", "host"),
    ("~", r"(?<![\w~/.])~(?P<name>[a-z_][\w.-]{1,31})(?=/)", "user"),
    ("~", r"\b(?:cd|ls|du|chown|cat|ll) (?:-\w{1,8} )?~(?P<name>[a-z_][\w.-]{1,31})", "user"),
    (":/", rf"(?<![\w.:/-])(?P<name>{_USER}):[^:\n]{{0,200}}:\d{{1,10}}:\d{{1,10}}:[^:\n]{{0,200}}:/", "user"),
    (":/", rf"(?<![\w.:/-]){_USER}:[^:\n]{{0,200}}:\d{{1,10}}:\d{{1,10}}:(?P<name>[^:\n]{{1,200}}):/", "person"),
    ("<", _OF_PEOPLE + r"(?P<name>[^\n<>@:]{1,80}?) <[^\n<>\s]{1,200}@", "person"),
    # ls -l, who
    ("r", rf"(?<!\S)[-dlbcps][-rwxsStT]{{9}}[.+@]?\s{{1,8}}\d{{1,8}}\s{{1,8}}(?P<name>{_USER})\s", "user"),
    ("r", rf"(?<!\S)[-dlbcps][-rwxsStT]{{9}}[.+@]?\s{{1,8}}\d{{1,8}}\s{{1,8}}\S{{1,64}}\s{{1,8}}(?P<name>{_USER})\s", "user"),
    ("", rf"(?<![\w.:@/-])(?P<name>{_USER})\s{{1,40}}(?:pts/\d{{1,5}}|tty\w{{1,6}}|:\d)\s", "user"),
    ("(", rf"(?<!\S)\S{{1,64}}\s{{1,40}}(?:pts/\d{{1,5}}|tty\w{{1,6}}|:\d)\s[^\n(]{{1,80}}\((?P<name>[A-Za-z]{HOST[6:]})\)", "host"),
    ("ession ", rf"\b[Ss]ession \S{{1,12}} (?:of|for) [Uu]ser (?P<name>{_USER}?)(?=[.,]?(?:\s|$))", "user"),
    # ssh_config
    ("User ", rf"(?m)^[ \t]{{1,16}}User[ \t]{{1,8}}(?P<name>{_USER})[ \t\r]*$", "user"),
    ("HostName ", r"(?m)^[ \t]{0,16}HostName[ \t]{1,8}(?P<name>HOST)[ \t\r]*$", "host"),
    ("Host ", r"(?m)^Host[ \t]{1,8}(?P<name>HOST)[ \t\r]*\n(?=[ \t]{1,16}(?:HostName|User|Port|ProxyJump|IdentityFile)[ \t])", "host"),
    # hosts in commands and what they print
    (" (", r"\b(?:PING|traceroute to) (?P<name>HOST) \(", "host"),
    # Open MPI: `[gpu001:4242] *** Process received signal ***`; UCX: `[1760000000.123456] [gpu001:4242 :0]`
    ("[", r"(?m)^(?:\[\d{9,11}\.\d{1,9}\] )?\[(?!mlx|rank|cuda|[0-9a-f]{4}:[0-9a-f]{4}[]])(?P<name>HOST):\d{3,8}(?:[ ]{0,3}:[a-z]?\d{1,4})?\] ", "host"),
    ("rsync", rf"\brsync\s[^\n:]{{0,200}}?\s(?P<name>{HOST}):/", "host"),
    ("Linux ", rf"\bLinux (?!version)(?P<name>{HOST}) \d{{1,3}}\.\d{{1,4}}\.\d", "host"),
    ("ost", _START + rf"\s{{0,40}}(?:(?:Static|Transient|Pretty) hostname|Host|Node|Server|hostname)\s{{0,8}}:\s{{1,8}}(?P<name>{HOST})\s{{0,8}}$", "host"),
    (" host ", rf"\b(?:to|from|for|on) host (?:(?P<name>{HOST}?)(?=:? port\b))", "host"),
    (" host ", r"\b(?:to|from|for|on) host (?P<name>[A-Za-z][A-Za-z_.-]{0,200}\d[\w.-]{0,200})", "host"),
    ("-w", rf"\b(?:pdsh|clush|srun|salloc|sbatch|sinfo|squeue|sattach|nodeset|clubak)\b[^\n]{{0,300}}?\s-[wx][ =]?(?P<name>{_LIST})", "host"),
    ("-H", rf"\b(?:mpirun|mpiexec|orterun|prterun|horovodrun|mpiexec\.hydra)\b[^\n]{{0,300}}?\s-H[ =]?(?P<name>{_LIST})", "host"),
    ("-", rf"(?<!\S)--?(?:nodelist|exclude|hosts?|node|nodes|nodename|master[-_]addr|submit-host|rdzv[-_]endpoint)[= ][\"']?(?P<name>[A-Za-z]{_LIST[6:]})", "host"),
    ("-J", rf"\bssh\b[^\n]{{0,200}}?\s-J ?(?:{_USER}@)?(?P<name>{HOST})", "host"),
    ("slots=", rf"(?m)^\s{{0,8}}(?P<name>{HOST})\s{{1,40}}slots=\d", "host"),
    ("://", r"\b[a-z][a-z0-9+.-]{1,15}://(?:[^\s/@]{0,300}@)?(?P<name>[A-Za-z][A-Za-z_-]{0,62}\d[\w-]{0,62})(?=[:/]|\s|$)", "host"),
    # buckets and accounts of object stores, and of Weights & Biases
    ("://", r"\b(?:s3[an]?|gs|gcs|r2|oss|cos|swift|abfss?|wasbs?|adl)://(?P<name>[^\W_][\w-]{1,62})(?=[/@.\s\"',;)]|$)", "name"),
    ("://", r"\b(?:s3[an]?|gs|gcs|r2|oss|cos|swift)://(?P<name>[^\W_][\w.-]{2,62})", "name"),
    ("://", r"://(?P<name>[^\W_][\w-]{1,62})\.s3[\w.-]{0,40}\.amazonaws\.com", "name"),
    ("amazonaws", r"//s3[\w.-]{0,40}amazonaws\.com/(?P<name>[^\W_][\w.-]{2,62})", "name"),
    ("google", r"//storage\.(?:googleapis|cloud\.google)\.com/(?P<name>[^\W_][\w.-]{2,62})", "name"),
    (".core.windows.net", r"(?:@|//)(?P<name>[^\W_][\w-]{1,62})\.(?:blob|dfs|file|queue|table)\.core\.windows\.net", "name"),
    (".core.windows.net", r"\.(?:blob|dfs|file|queue|table)\.core\.windows\.net/(?P<name>[^\W_][\w-]{2,62})", "name"),
    ("wandb.ai/", r"wandb\.ai/(?!authorize|settings|home|site\b)(?P<name>[\w.-]{2,64})(?=/|\s|$)", "name"),
    ("wandb.ai/", r"wandb\.ai/[\w.-]{2,64}/(?P<name>[\w-]{2,64})", "name"),
)  # fmt: skip
PLACES = tuple((sign, re.compile(where.replace("HOST", HOST)), kind) for sign, where, kind in _WHERE)

#: Who owns a folder below one of these: `/home/jdoe`, `/scratch/users/jdoe`.
OWNER = re.compile(rf"/(?:{TOPS})/(?=([^\s/\"'\\:;,<>()\[\]{{}}|&=*$]+)(/?))")
