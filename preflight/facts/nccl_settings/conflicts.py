"""Settings that cancel or exclude each other."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.facts.nccl_environment import NcclEnvironment
from preflight.facts.nccl_settings.catalogue import table
from preflight.facts.nccl_settings.value_grammar import STRICT
from preflight.facts.nccl_settings.violation import SettingScope, SettingsReader, Violation


def contradictions(env: NcclEnvironment, here: SettingScope) -> Iterator[Violation]:
    """Yield settings that cancel or exclude each other."""
    read = SettingsReader(env)
    yield from _network_clashes(read, here)
    yield from _memory_clashes(read, here)
    yield from _count_clashes(read)


def _network_clashes(read: SettingsReader, here: SettingScope) -> Iterator[Violation]:
    of_verbs = {name for name in table().variables if name.startswith("NCCL_IB_")}
    network, off = read.text("NCCL_NET").casefold(), bool(read.number("NCCL_IB_DISABLE"))
    if off and network == "ib":
        yield read.clash("the job fails at start, because its only network is disabled", "NCCL_IB_DISABLE unset",
                         "NCCL_IB_DISABLE", "NCCL_NET", fatal=True)  # fmt: skip
    elif off and (useless := [one for one in read.env.settings if one.name in of_verbs and one.value]):
        names = [one.name for one in useless if one.name != "NCCL_IB_DISABLE"]
        if names:
            shown = [*names[:3], f"{len(names) - 3} more"] if len(names) > 3 else names
            listed = " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
            settings = read.set("NCCL_IB_DISABLE", *names)
            what = f"NCCL_IB_DISABLE={read.text('NCCL_IB_DISABLE')} leaves {listed} without effect"
            yield Violation("contradiction", settings, what, "one or the other")
    if network == "socket" and read.number("NCCL_COLLNET_ENABLE"):
        yield read.clash(
            "NCCL's TCP transport has no in-network collectives", "one or the other", "NCCL_NET", "NCCL_COLLNET_ENABLE"
        )
    if read.text("NCCL_NET_PLUGIN").casefold() == "none" and network and network not in ("ib", "socket"):
        yield read.clash("the job fails at start, because that network belongs to a plug-in", "one or the other",
                         "NCCL_NET_PLUGIN", "NCCL_NET", fatal=True)  # fmt: skip
    if read.set("NCCL_OOB_NET_IFNAME") and not read.number("NCCL_OOB_NET_ENABLE"):
        yield read.clash("has an effect only with NCCL_OOB_NET_ENABLE=1", "NCCL_OOB_NET_ENABLE=1, or unset",
                         "NCCL_OOB_NET_IFNAME", "NCCL_OOB_NET_ENABLE")  # fmt: skip
    level = read.text("NCCL_NET_GDR_LEVEL")
    far = level == "SYS" or (level.isdigit() and (read.number("NCCL_NET_GDR_LEVEL") or 0) >= 4)
    if far and read.set("NCCL_DMABUF_ENABLE") and read.number("NCCL_DMABUF_ENABLE") == 0 and here.peer_memory is False:
        yield read.clash("NICs cannot reach GPU memory, because no peer-memory module is loaded",
                         "NCCL_DMABUF_ENABLE unset", "NCCL_DMABUF_ENABLE", "NCCL_NET_GDR_LEVEL")  # fmt: skip
    threshold, buffer = read.number("NCCL_IB_AR_THRESHOLD"), read.number("NCCL_BUFFSIZE") or 4194304
    if threshold is not None and threshold > buffer:
        yield read.clash("NCCL never uses adaptive routing, because no message is larger than its buffer",
                         f"at most {buffer}", "NCCL_IB_AR_THRESHOLD", "NCCL_BUFFSIZE")  # fmt: skip


def _memory_clashes(read: SettingsReader, here: SettingScope) -> Iterator[Violation]:
    cumem_off = bool(read.set("NCCL_CUMEM_ENABLE")) and read.number("NCCL_CUMEM_ENABLE") == 0
    for name, feature in (("NCCL_NVLS_ENABLE", "NVLink SHARP"), ("NCCL_MNNVL_ENABLE", "NVLink between nodes")):
        if cumem_off and read.number(name) == 1:
            yield read.clash(f"{feature} needs cuMem memory", "NCCL_CUMEM_ENABLE unset", "NCCL_CUMEM_ENABLE", name)
    if read.number("NCCL_MULTI_RANK_GPU_ENABLE") == 1 and read.number("NCCL_NVLS_ENABLE") == 1:
        yield read.clash("the job fails at start, because ranks that share a GPU cannot use NVLink SHARP",
                         "NCCL_NVLS_ENABLE unset", "NCCL_NVLS_ENABLE", "NCCL_MULTI_RANK_GPU_ENABLE",
                         fatal=True)  # fmt: skip
    algorithms = [item.casefold() for item in read.text("NCCL_ALGO").split(",")]
    if any(item.startswith("nvls") for item in algorithms) and read.number("NCCL_NVLS_ENABLE") == 0:
        alone = all(item.startswith("nvls") for item in algorithms)
        fatal = alone and here.version is not None and here.version >= STRICT
        yield read.clash(
            "no algorithm remains, so the job fails at start" if fatal else "NVLS is requested but disabled",
            "one or the other",
            "NCCL_ALGO",
            "NCCL_NVLS_ENABLE",
            fatal=fatal,
        )
    if read.number("NCCL_P2P_DISABLE") == 1:
        if read.set("NCCL_P2P_LEVEL"):
            yield read.clash("NCCL_P2P_LEVEL has no effect", "one or the other", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")
        if read.number("NCCL_SHM_DISABLE") == 1:
            yield read.clash("only the network remains between the GPUs of a node", "both unset",
                             "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")  # fmt: skip


def _count_clashes(read: SettingsReader) -> Iterator[Violation]:
    for kind in ("NCHANNELS", "CTAS"):
        low, high = f"NCCL_MIN_{kind}", f"NCCL_MAX_{kind}"
        least, most = read.number(low), read.number(high)
        if least is not None and most is not None and least > most > 0:
            yield read.clash("the minimum is larger than the maximum", f"at most {most}", low, high)
    for end in ("MIN", "MAX"):
        old, new = f"NCCL_{end}_NCHANNELS", f"NCCL_{end}_CTAS"
        if read.set(old) and read.set(new):
            yield read.clash("they have the same meaning, and the stricter one applies", f"{new} alone", old, new)


def socket_threads(env: NcclEnvironment, here: SettingScope) -> Iterator[Violation]:
    """Report more TCP threads or sockets than NCCL accepts.

    The limits are 16 threads, and 64 sockets per connection (src/transport/net_socket.cc).
    """
    read = SettingsReader(env)
    threads, each = read.number("NCCL_SOCKET_NTHREADS"), read.number("NCCL_NSOCKS_PERTHREAD")
    names = ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")
    settings = read.set(*names)
    set_to = " with ".join(setting.text for setting in settings)
    if threads is not None and threads > 16:
        yield Violation(
            "socket-threads",
            settings,
            f"{set_to} requests {threads} threads, but NCCL accepts at most 16",
            "at most 16 threads",
        )
    elif (threads or 1) * (each or 1) > 64:
        what = f"{set_to} requests {(threads or 1) * (each or 1)} sockets per connection, but NCCL accepts at most 64"
        yield Violation("socket-threads", settings, what, "a product of at most 64")
