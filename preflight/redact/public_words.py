"""Words that do not identify a site: of tools and formats, and public domains."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Traversable

#: Domains of vendors, distributions or formats, which do not identify a site. Kubernetes keys contain them as well.
PUBLIC = frozenset((
    "nvidia.com", "mellanox.com", "nvcr.io", "k8s.io", "kubernetes.io", "cncf.io", "cni.dev", "openshift.io",
    "coreos.com", "docker.io", "docker.com", "quay.io", "ghcr.io", "gcr.io", "ubuntu.com", "debian.org", "redhat.com",
    "rockylinux.org", "almalinux.org", "fedoraproject.org", "suse.com", "opensuse.org", "centos.org", "canonical.com",
    "launchpad.net", "kernel.org", "gnu.org", "freedesktop.org", "python.org", "pytorch.org", "github.com",
    "github.io", "githubusercontent.com", "gitlab.com", "huggingface.co", "anaconda.com", "anaconda.org",
    "schedmd.com", "openucx.org", "openfabrics.org", "linux-rdma.org", "intel.com", "amd.com", "broadcom.com",
    "juniper.net", "arista.com", "cisco.com", "dell.com", "hpe.com", "supermicro.com", "lenovo.com", "ntp.org",
    "w3.org", "ietf.org", "rfc-editor.org", "json-schema.org", "apache.org", "prometheus.io", "grafana.com",
    "kubeflow.org", "volcano.sh", "cilium.io", "projectcalico.org", "tigera.io", "run.ai", "ray.io", "google.com",
    "amazonaws.com", "googleapis.com", "windows.net", "wandb.ai", "slack.com", "discord.com", "discordapp.com",
    "office.com", "office365.com", "stripe.com",
    "openai.com", "anthropic.com", "telegram.org", "pagerduty.com", "sentry.io", "zapier.com", "openssh.com",
    "libssh.org", "azure.com", "microsoft.com", "oracle.com", "example.com", "example.org", "cluster.local",
    "localhost.localdomain",
))  # fmt: skip

#: Top-level domains; a name with such an ending is always a domain name.
_GENERIC = frozenset((
    "com", "org", "net", "edu", "gov", "mil", "int", "arpa", "local", "localdomain", "internal", "intranet",
    "intra", "corp", "lan", "cloud", "ai", "dev", "tech", "systems", "cluster", "hpc", "example", "invalid",
))  # fmt: skip

#: Country domains; the name must have two dots, because some are also file extensions.
_COUNTRIES = frozenset((
    "ac", "ae", "ar", "at", "au", "be", "br", "ca", "ch", "cl", "cn", "co", "cz", "de", "dk", "ee", "es", "eu",
    "fi", "fr", "gr", "hk", "hu", "ie", "il", "in", "io", "is", "it", "jp", "kr", "lt", "lu", "lv", "mx", "my",
    "nl", "no", "nz", "pl", "pt", "ro", "ru", "sa", "se", "sg", "si", "sk", "th", "tr", "tw", "ua", "uk", "us",
    "vn", "za",
))  # fmt: skip

#: Parent directories of home directories, and names in them that are not users.
TOPS = r"home\d*|homes|work\d*|Users|users|scratch\d*|fsx\d*|u|people|staff|students?"
NO_USERS = frozenset((
    "tmp", "temp", "data", "shared", "share", "public", "common", "lib", "lib64", "bin", "etc", "local", "cache", "log",
    "logs", "slurm", "job", "jobs", "run", "runs", "models", "datasets", "checkpoints", "ckpt", "nccl", "cuda", "apps",
    "containers", "images", "sw", "software", "opt", "projects", "project", "users", "home", "homes", "work", "scratch",
    "groups", "group", "teams", "conf", "config", "include", "src", "lost+found", "linuxbrew", ".", "..", "people",
))  # fmt: skip

#: Organisations of public code and models, which do not identify a site.
PUBLIC_OWNERS = (
    r"nvidia(?:-[\w.-]{1,40})?|nvlabs|rapidsai|mellanox|linux-rdma|pytorch|meta-llama|facebook|facebookresearch|huggingface|"
    r"google|google-[\w-]{1,20}|googlecloudplatform|openai|microsoft|azure|aws|aws-[\w-]{1,20}|amazon|oracle|oracle-[\w-]{1,20}|"
    r"amd|rocm|intel|deepspeedai|eleutherai|bigscience(?:-workshop)?|bigcode|mistralai|qwen|qwenlm|deepseek-ai|tiiuae|stabilityai|"
    r"allenai|databricks|mosaicml|lightning-ai|ray-project|kubernetes(?:-sigs)?|kubeflow|kserve|volcano-sh|coreweave|"
    r"schedmd|open-mpi|openpmix|openucx|ofiwg|slurm[\w-]{0,20}|vllm-project|sgl-project|triton-inference-server|ai-dynamo|"
    r"dao-ailab|hazyresearch|tensorflow|jax-ml|apache|torvalds|python|psf|pypa|conda-forge|spack|easybuilders|prometheus|"
    r"grafana|helm|docker|containerd|opencontainers|moby|actions|features|orgs|topics|settings|login|apps|about|docs|models|"
    r"datasets|spaces|api|blog|papers|tasks"
)

#: Account names that exist on every system.
ACCOUNTS = frozenset((
    "root", "nobody", "daemon", "admin", "administrator", "user", "ubuntu", "debian", "centos", "rocky", "ec2-user",
    "opc", "azureuser", "slurm", "munge", "nvidia", "systemd-network", "messagebus", "sshd", "chrony", "ntp",
    "prometheus", "preflight", "bin", "sys", "sync", "games", "man", "mail", "news", "backup", "syslog", "dbus",
    "polkitd", "rpc", "rpcuser", "postfix", "systemd-resolve", "systemd-timesync", "systemd-oom", "systemd-coredump",
    "_chrony", "_apt", "tss", "uuidd", "tcpdump", "landscape", "lxd", "dnsmasq", "avahi", "rtkit", "libvirt-qemu",
    "kernoops", "nvidia-persistenced", "wheel", "sudo", "adm", "users", "video", "render", "docker", "staff", "tty",
    "disk", "kvm", "service", "guest", "git", "oauthtoken", "anonymous", "shared", "public", "default", "none",
    "null", "unknown", "n/a",
))  # fmt: skip

#: Names by which any machine refers to itself.
SELF = frozenset(("localhost", "localhost.localdomain", "ip6-localhost", "(none)", "uninitialized", "unknown", "none"))

#: Packages and modules that contain the words of the formats that preflight reads.
_PARTS = (
    "facts", "parsers", "textprep", "collector", "checks", "recognition", "expectations", "reports", "probes",
    "checklist",
)  # fmt: skip


def is_domain(name: str) -> bool:
    """Return whether a dotted name is a domain of a site, or a host in one."""
    labels = name.lower().rstrip(".").split(".")
    if len(labels) < 2 or not all(labels) or is_public(name):
        return False
    return labels[-1] in _GENERIC or (len(labels) > 2 and labels[-1] in _COUNTRIES)


def is_public(name: str) -> bool:
    """Return whether a domain, or one that it belongs to, is public."""
    labels = name.lower().rstrip(".").split(".")
    return any(".".join(labels[place:]) in PUBLIC for place in range(len(labels)))


#: Docstrings of Python source, and its comments and strings; only a string has a group 1.
_DOCSTRING = re.compile(r'^[ \t]*"""(?:[^"\\]|\\.|"(?!""))*"""', re.M)
_STRING = re.compile(r'''#[^\n]*|("""(?:[^"\\]|\\.|"(?!""))*"""|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')''', re.S)

#: Words of parsers that are also common project names.
_PROJECTS = frozenset(("llm", "llms", "vlm", "gpt", "chat", "agent"))


@cache
def vocabulary() -> frozenset[str]:
    """Return the words that parsers and checks compare and print, in lower case.

    They are in strings and data files. Names, comments and docstrings do not count: a word of prose
    may also be the name of a host.
    """
    found: set[str] = set()
    for part in _PARTS:
        _words(files("preflight").joinpath(part), found)
    return frozenset(found - _PROJECTS)


def _words(place: Traversable, found: set[str]) -> None:
    if place.is_dir():
        for inside in place.iterdir():
            if inside.name != "__pycache__":
                _words(inside, found)
    elif place.name.endswith((".py", ".toml", ".json", ".j2")):
        text = place.read_text(encoding="utf-8")
        if place.name.endswith(".py"):
            text = " ".join(string[1] or "" for string in _STRING.finditer(_DOCSTRING.sub("", text)))
        found |= set(re.findall(r"[a-z]+[0-9]?", text.lower()))
