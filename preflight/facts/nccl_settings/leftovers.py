"""Rules for settings left over from an experiment or another fabric."""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.facts.nccl_environment import LOCAL_INTERFACES, NcclEnvironment, Setting
from preflight.facts.nccl_kill_switches import SWITCHES
from preflight.facts.nccl_settings.violation import SettingScope, SettingsReader, Violation


def left_over(env: NcclEnvironment, here: SettingScope) -> Iterator[Violation]:
    """Yield settings that disable a transport without need.

    The scope shows whether they have an effect (nccl.left-over-disables).
    """
    for name, switch in SWITCHES.items():
        for setting in SettingsReader(env).set(name):
            if switch.on(setting.value) and not (switch.of_rdma and here.rdma is False):
                what = f"{setting.text} in {setting.where} {switch.effect}"
                if needed(env, setting) or (here.libfabric and name == "NCCL_IB_DISABLE"):
                    continue
                yield Violation("left-over", (setting,), what, "unset, except for an experiment")


def local_interface(env: NcclEnvironment, here: SettingScope) -> Iterator[Violation]:
    """Yield a selection of interfaces that lead to no other node, by their names.

    Where the interfaces are known, nccl.socket-ifname judges them.
    """
    selection, setting = env.socket_selection, env.get("NCCL_SOCKET_IFNAME")
    if setting is None or selection is None or selection.exclude or here.nodes == 1:
        return
    if selection.items and all(item.name.startswith(LOCAL_INTERFACES) for item in selection.items):
        what = f"{setting.text} in {setting.where} selects only interfaces that lead to no other node"
        yield Violation("local-interface", (setting,), what, "an interface of every node; on one node, any")


def verbose_log(env: NcclEnvironment, here: SettingScope) -> Iterator[Violation]:
    """Yield log settings that slow the job down, or let ranks overwrite the log."""
    read = SettingsReader(env)
    level = read.text("NCCL_DEBUG").strip().upper()
    debug = read.set("NCCL_DEBUG")
    if level == "TRACE":
        what = f"{debug[0].text} in {debug[0].where} writes a line for every step of every collective"
        yield Violation("verbose-log", debug, what, "WARN, or INFO while debugging")
    elif level == "INFO" and (here.ranks or 0) > 1000:
        what = f"{debug[0].text} in {debug[0].where} writes gigabytes of log at each start of {here.ranks} ranks"
        yield Violation("verbose-log", debug, what, "WARN")
    subsystems = [item.strip().upper() for item in read.text("NCCL_DEBUG_SUBSYS").split(",")]
    loud = [item for item in subsystems if item in ("ALL", "COLL", "CALL")]
    if level in ("INFO", "TRACE") and loud:
        settings = read.set("NCCL_DEBUG_SUBSYS", "NCCL_DEBUG")
        named = f" ({', '.join(loud)})" if ",".join(loud) != settings[0].value.strip().upper() else ""
        what = f"{settings[0].text} in {settings[0].where} writes a line for every collective{named}"
        yield Violation("verbose-log", settings, what, "INIT,BOOTSTRAP,ENV, with NET,GRAPH while debugging")
    path = read.set("NCCL_DEBUG_FILE")
    if path and not re.search("%[hp]", path[0].value) and not path[0].value.startswith("/dev/"):
        what = f"{path[0].text} in {path[0].where} names one file for all ranks, which overwrite each other's lines"
        yield Violation("shared-log-file", path, what, "a name with %h (host) and %p (process)")


#: Settings of the plug-ins GPUDirect-TCPX and TCPXO (FasTrak) on Google's A3 machines.
_GOOGLES = re.compile("NCCL_(GPUDIRECTTCPX|FASTRAK)_")


def of_googles_plugin(env: NcclEnvironment, setting: Setting) -> bool:
    """Return whether a setting belongs to Google's GPUDirect-TCPX or TCPXO recipe.

    The plug-ins support the protocol Simple with rings and trees; a second profile of TCPXO adds LL128. Their guide
    disables NVLink SHARP and sets the number of channels (GKE, "Maximize GPU network bandwidth"; nccl-env-profile.sh
    and the tuner's a3plus_tuner_config_ll128.textproto in the plug-in's image).
    """
    theirs = {match[1] for one in env.settings if (match := _GOOGLES.match(one.name))}
    if not theirs:
        return False
    items = {item.strip().casefold() for item in setting.value.split(",")}
    protocols = {"simple"} | ({"ll128"} if "FASTRAK" in theirs and "simple" in items else set())
    allowed = {"NCCL_ALGO": {"ring", "tree"}, "NCCL_PROTO": protocols}.get(setting.name)
    if allowed is not None:
        return items <= allowed
    return setting.name in ("NCCL_NVLS_ENABLE", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS")


def needed(env: NcclEnvironment, setting: Setting) -> bool:
    """Return whether a variable that disables something is required.

    Google's plug-ins need some of these variables, and so do ranks that share a GPU, which NVLS does not support.
    """
    shared = SettingsReader(env).number("NCCL_MULTI_RANK_GPU_ENABLE") == 1
    return (shared and setting.name == "NCCL_NVLS_ENABLE") or of_googles_plugin(env, setting)


def _of_amazons_plugin(setting: Setting, here: SettingScope) -> bool:
    """Return whether aws-ofi-nccl itself made a setting.

    It sets NCCL_PROTO on instances with unordered EFA (P3dn, P4d).
    """
    return here.libfabric and setting.name == "NCCL_PROTO" and setting.value.strip().casefold() == "simple"


def pinned_choices(env: NcclEnvironment, here: SettingScope) -> Iterator[Violation]:
    """Yield pinned choices that NCCL itself makes better, by size and topology."""
    read = SettingsReader(env)
    for name, kind in (("NCCL_ALGO", "algorithm"), ("NCCL_PROTO", "protocol")):
        for setting in read.set(name):
            if of_googles_plugin(env, setting) or _of_amazons_plugin(setting, here):
                continue
            forced = name == "NCCL_PROTO" and not setting.value.startswith("^") and "ll128" in setting.value.casefold()
            if forced and here.nvlink is False:
                what = f"{setting.text} in {setting.where} forces LL128 without NVLink, which can corrupt data"
                yield Violation("ll128", (setting,), what, "unset", fatal=True)
            else:
                what = f"{setting.text} in {setting.where} {_holds(setting.value, kind)} for every size and collective"
                yield Violation("pinned", (setting,), what, "unset: NCCL chooses by size and topology")
    for setting in read.set("NCCL_LAUNCH_MODE"):
        if setting.value == "GROUP":
            what = (
                f"{setting.text} in {setting.where} has been deprecated since NCCL 2.9, and makes launches "
                "wait for each other"
            )
            yield Violation("pinned", (setting,), what, "unset")
    if here.nvswitch:
        for setting in read.set("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"):
            if of_googles_plugin(env, setting):
                continue
            what = (
                f"{setting.text} in {setting.where} limits the number of channels, although NVSwitches connect the GPUs"
            )
            yield Violation("pinned-channels", (setting,), what, "unset: NCCL derives the number from the NVLinks")


def _holds(value: str, kind: str) -> str:
    """Return, in words, how a list limits NCCL's algorithms or protocols."""
    if value.lstrip().startswith("^"):
        return f"prevents NCCL from using the {kind} {value.strip()[1:]}"
    several = "," in value or ";" in value or ":" in value
    return f"leaves NCCL these {kind}s only," if several else f"pins one {kind}"


def fabric_fit(env: NcclEnvironment, here: SettingScope) -> Iterator[Violation]:
    """Yield settings tuned for a different kind of fabric."""
    read = SettingsReader(env)
    pairs = read.number("NCCL_IB_QPS_PER_CONNECTION")
    if pairs is not None and pairs > 1 and here.infiniband:
        (setting,) = read.set("NCCL_IB_QPS_PER_CONNECTION")
        what = (
            f"{setting.text} in {setting.where} does not help: additional queue pairs need ECMP, which "
            "InfiniBand does not use"
        )
        yield Violation("fabric-fit", (setting,), what, "unset on InfiniBand")
    if read.number("NCCL_IB_SPLIT_DATA_ON_QPS") == 1:
        (setting,) = read.set("NCCL_IB_SPLIT_DATA_ON_QPS")
        what = f"{setting.text} in {setting.where} splits every message between the queue pairs"
        yield Violation(
            "fabric-fit", (setting,), what, "unset: NCCL then sends complete messages on the queue pairs in turn"
        )
    if read.number("NCCL_CROSS_NIC") == 1 and here.rails_apart:
        (setting,) = read.set("NCCL_CROSS_NIC")
        what = f"{setting.text} in {setting.where} lets NCCL send between rails, but each rail is a separate subnet"
        yield Violation("fabric-fit", (setting,), what, "0 if no router connects the rails; otherwise unset")
    for name in ("NCCL_IB_TC", "NCCL_IB_FIFO_TC"):
        number = read.number(name)
        if number is not None and 0 <= number <= 255 and number & 3 == 3:
            (setting,) = read.set(name)
            what = (
                f"{setting.text} in {setting.where} sets both ECN bits, which marks every packet as having met "
                "congestion"
            )
            yield Violation("fabric-fit", (setting,), what, f"{number - 1} (DSCP {number >> 2}, ECN-capable)")
