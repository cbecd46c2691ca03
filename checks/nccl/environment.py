"""Checks of NCCL's environment: disabled transports, socket interfaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from preflight import facts
from preflight._startup.lightclass import dataclass
from preflight.checks.applicability import PCI_BUS, RDMA_CLASS, is_efa_node
from preflight.checks.nccl.settings_scope import as_set, environments, has_nvlink, nearest_of, unread
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.interfaces import ROOT as NET
from preflight.facts.nccl_environment import LOCAL_INTERFACES, PROCESS, REDACTED, Setting
from preflight.facts.nccl_kill_switches import SWITCHES
from preflight.facts.node import TOPO, NodeFacts
from preflight.facts.rdma_ports import natural
from preflight.model import Finding, Status, check, failed, passed, unknown, warned

GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"


# --- left-over switches ----------------------------------------------------------------------------


def _rdma(node: NodeFacts, site: Site) -> bool:
    return bool(node.rdma_devices)


def _own_rdma(node: NodeFacts, site: Site) -> bool:
    """Return whether the node has a device for NCCL's built-in RDMA transport.

    EFA devices do not count, because NCCL uses them through a plug-in.
    """
    return bool(node.rdma_devices) and not is_efa_node(node)


def _nvls(node: NodeFacts, site: Site) -> bool:
    # NVLink SHARP came with the third-generation NVSwitch of Hopper (NCCL 2.17 release notes)
    return site.part is not None and site.part.nvswitch and "A100" not in site.part.gpu.name


def _multi_node_nvlink(node: NodeFacts, site: Site) -> bool:
    return any(gpu.fabric is not None and gpu.fabric.multi_node for gpu in node.gpu_health.gpus)


def _grace(node: NodeFacts, site: Site) -> bool:
    return site.part is not None and site.part.nic_on_cpu and bool(node.rdma_devices)


def _only_dma_buf(node: NodeFacts, site: Site) -> bool:
    return bool(node.rdma_devices) and not any(name in node.modules for name in facts.kernel.PEER_MODULES)


def _rails(node: NodeFacts, site: Site) -> bool:
    return len(node.rdma_devices) > 1 and has_nvlink(node, site)


def _gpus(node: NodeFacts, site: Site) -> bool:
    return len(node.gpus_on_bus) > 1


@dataclass(frozen=True)
class Leftover:
    """A variable that disables a feature, and where it has an effect."""

    variable: str  # a key of SWITCHES
    bites: Callable[[NodeFacts, Site], bool]  # whether this node has the disabled feature
    harmless: str  # why it has no effect otherwise
    status: Status
    evidence: str  # record that shows whether it has an effect
    otherwise: Status = Status.PASS  # status if it has no effect
    answers: tuple[str, ...] = ()  # checklist items that it answers


LEFTOVERS = (
    Leftover("NCCL_IB_DISABLE", _own_rdma, "the kernel has no RDMA device other than EFA", Status.FAIL, RDMA_CLASS,
             answers=("NT-ENV-4",)),
    Leftover("NCCL_NET", _rdma, "the kernel has no RDMA device", Status.FAIL, RDMA_CLASS),
    Leftover("NCCL_P2P_DISABLE", has_nvlink, "the GPUs have no NVLink", Status.FAIL, TOPO, Status.WARN,
             ("NT-ENV-5", "NT-LENS-4")),
    Leftover("NCCL_P2P_LEVEL", has_nvlink, "the GPUs have no NVLink", Status.FAIL, TOPO, Status.WARN,
             ("NT-LENS-4",)),
    Leftover("NCCL_SHM_DISABLE", _gpus, "the PCI bus has fewer than two GPUs", Status.WARN, PCI_BUS,
             answers=("NT-ENV-6", "NT-LENS-5")),
    Leftover("NCCL_NET_GDR_LEVEL", _rdma, "the kernel has no RDMA device", Status.WARN, RDMA_CLASS),
    Leftover("NCCL_NET_GDR_READ", _rdma, "the kernel has no RDMA device", Status.WARN, RDMA_CLASS),
    Leftover("NCCL_NET_GDR_C2C", _grace, "no Grace processor was detected", Status.WARN, PCI_BUS),
    Leftover("NCCL_DMABUF_ENABLE", _only_dma_buf, "a peer-memory module is loaded, or there is no RDMA device",
             Status.WARN, facts.kernel.MODULES),
    Leftover("NCCL_PXN_DISABLE", _rails, "the node has at most one RDMA device, or no NVLink", Status.WARN, RDMA_CLASS),
    Leftover("NCCL_MNNVL_ENABLE", _multi_node_nvlink, "any NVLink fabric is limited to this node", Status.FAIL,
             facts.nvidia.query.NVML),
    Leftover("NCCL_NVLS_ENABLE", _nvls, "no board with NVLink SHARP was detected", Status.WARN, PCI_BUS),
)  # fmt: skip

ITEMS = ("NT-ENV-4", "NT-ENV-5", "NT-ENV-6", "NT-LENS-4", "NT-LENS-5")


@check(
    "nccl.left-over-disables",
    title="No NCCL transport is left disabled",
    fault="An NCCL transport was left disabled",
    impact="slows-job",
    explains=(
        ("nccl.contradictions", "part"),
        ("nccl.transport", "log"),
        ("nccl.gpudirect-rdma", "log"),
        ("nccl.run-settings", "log"),
    ),
    source=f"{GUIDE}; values as in NCCL 2.30 src/misc/param.cc",
    fix="Remove the variable where it is set (environment, /etc/nccl.conf, ~/.nccl.conf); if it works around a "
    "fault, find that fault.",
    action="fix-job",
    answers=ITEMS,
    reads=("nvml:gpus",),
)
def left_over_disables(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for NCCL variables that disable a transport.

    ## Why it matters
    Such a variable is often left over from an experiment: jobs still run, but over TCP or through host memory, at a
    fraction of the bandwidth and without any message.

    ## Verdicts
    Values are parsed as in NCCL: ``true`` is 0 and disables nothing. These fail: RDMA disabled on a node with RDMA
    devices, peer-to-peer disabled on a node with NVLink (on other nodes it warns), and multi-node NVLink disabled on a
    fabric that spans nodes. Disabled shared memory, GPUDirect RDMA and NVLink SHARP warn. The environments of ranks
    running on the node are checked too. NCCL_IB_DISABLE has no effect on AWS EFA, which NCCL uses through a plug-in,
    and passes.

    NCCL_NVLS_ENABLE=0 with Google's plug-ins (TCPX, TCPXO) follows their documentation and passes. It also passes if
    ranks share a GPU (NCCL_MULTI_RANK_GPU_ENABLE=1), because NCCL does not start with both.

    ## False alarms
    An image built for one kind of node and used on another; give that kind its own /etc/nccl.conf.
    """
    on = []
    for leftover, setting in _switches(node):
        value = setting.value
        if SWITCHES[leftover.variable].on(value):
            on.append(leftover)
            yield _left_over(node, site, leftover, setting).about(*leftover.answers)
        elif leftover.variable.endswith("_DISABLE") and value.casefold() in ("true", "yes", "on"):
            yield warned(
                f"{setting.text} in {setting.where} is read as 0",
                subject=setting.name,
                found=value,
                expected="a number, or unset",
                evidence=[setting.source],
                quote=as_set(setting),
            )
    missing = list(unread(node, "a variable that disables a transport"))
    yield from missing
    if not missing:
        answered = {item for leftover in on for item in leftover.answers}
        others = f"the {len(LEFTOVERS)}" if not on else f"the other {len(LEFTOVERS) - len(on)}"
        finding = passed(f"none of {others} variables that disable a transport is set", evidence=[PROCESS])
        yield finding.about(*(item for item in ITEMS if item not in answered)) if on else finding


def _switches(node: NodeFacts) -> Iterator[tuple[Leftover, Setting]]:
    """Yield the variables set for new jobs or in running ranks, each value once."""
    seen = set()
    needed = facts.nccl_settings.leftovers.needed
    for number, env in enumerate(environments(node)):
        for leftover in LEFTOVERS:
            setting = env.get(leftover.variable)
            if setting is not None and leftover.variable == "NCCL_NVLS_ENABLE" and needed(env, setting):
                continue
            if setting is None or (leftover.variable, setting.value) in seen or (number and setting.value == REDACTED):
                continue
            seen.add((leftover.variable, setting.value))
            if env.text(leftover.variable):
                yield leftover, setting


def _left_over(node: NodeFacts, site: Site, leftover: Leftover, setting: Setting) -> Finding:
    message = f"{setting.text} in {setting.where} {SWITCHES[leftover.variable].effect}"
    try:
        bites = leftover.bites(node, site)
    except EvidenceError as error:
        return unknown(
            f"{message}, but it is unknown whether that has an effect on this node: {error}",
            subject=setting.name,
            evidence=[error.key],
        )
    keys = [setting.source, leftover.evidence]
    status = leftover.status if bites else leftover.otherwise
    if status is Status.PASS:
        return passed(f"{message}, but has no effect here: {leftover.harmless}", subject=setting.name, evidence=keys)
    grade = failed if status is Status.FAIL else warned
    return grade(
        f"{message}, expected unset",
        subject=setting.name,
        found=setting.value,
        expected="unset",
        evidence=keys,
        quote=as_set(setting),
    )


# --- interfaces ------------------------------------------------------------------------------------


@check(
    "nccl.socket-ifname",
    explains=(("nccl.failures", "log"),),
    title="NCCL_SOCKET_IFNAME selects an interface that is up",
    fault="NCCL_SOCKET_IFNAME selects no interface that is up",
    impact="blocks-job",
    source=f"{GUIDE}#nccl-socket-ifname",
    fix="Name an interface that every node has (`ip -br addr`), or unset the variable; put per-node values in "
    "/etc/nccl.conf.",
    action="fix-job",
    answers=("NT-ENV-2", "PA-15"),
)
def socket_ifname(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the interfaces that NCCL_SOCKET_IFNAME selects with those of the node.

    The value is parsed as in NCCL.

    ## Why it matters
    Ranks find each other over this interface, regardless of the data transport. With a missing interface, the job fails
    at start ("no socket interface found"); with loopback, no peer can reach the rank.

    ## Verdicts
    Without ``=``, a name is a prefix; ``^`` excludes. A value of one character counts as unset. An operational state of
    "unknown" (virtual interfaces) counts as up. A value that selects no interface, or only interfaces that are down,
    fails.

    ## False alarms
    None known: a list for several kinds of nodes may name missing interfaces, as long as one exists.
    """
    setting, selection = node.nccl_env.get("NCCL_SOCKET_IFNAME"), node.nccl_env.socket_selection
    if setting is None or selection is None:
        missing = list(unread(node, "NCCL_SOCKET_IFNAME"))
        yield from missing or [
            passed("NCCL_SOCKET_IFNAME is unset, so NCCL selects the interfaces", evidence=[PROCESS])
        ]
        return
    here = node.netdevs
    chosen = sorted((name for name in here if selection.matches_name(name)), key=natural)
    useful = [name for name in chosen if not name.startswith(LOCAL_INTERFACES)]
    up = [name for name in useful if here[name].operstate in ("up", "unknown")]
    keys = [setting.source, *(f"file:{NET}/{name}/operstate" for name in (useful or chosen or sorted(here))[:3])]
    message = f"{setting.text} in {setting.where} selects "
    if up:
        yield passed(message + ", ".join(up), subject=setting.name, found=", ".join(up), evidence=keys)
        return
    if useful:
        message += f"only interfaces that are down: {', '.join(useful)}"
    elif chosen:
        message += f"only interfaces that lead to no other node: {', '.join(chosen)}"
    else:
        near = "" if selection.exclude or not selection.items else nearest_of(selection.items[0].name, here)
        message += f"no interface of this node{near}"
    yield failed(
        message,
        subject=setting.name,
        found=", ".join(chosen) or "nothing",
        expected=f"an interface that is up, one of {', '.join(sorted(here, key=natural))}",
        evidence=keys,
        quote=as_set(setting),
    )
