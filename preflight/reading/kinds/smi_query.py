"""``nvidia-smi -q`` and ``nvidia-smi -q -x``: one tree of names, read from either, then the same facts.

``N/A``, ``Not Supported`` and the like are no data: None. A name is looked up in all spellings that
drivers from R450 on print.
"""

from __future__ import annotations

import re
from typing import Any
from xml.parsers import expat

from preflight.reading.blocks import is_prompt
from preflight.reading.lines import Lines
from preflight.reading.parts import Cut, Kind, Taken

Tree = dict[str, Any]

_NO_DATA = re.compile(
    r"(?i)\[?(?:n/a|not supported|unknown error|gpu is lost|gpu requires reset|insufficient permissions"
    r"|requested functionality has been deprecated|not found|err!)\]?|"
)
_LOG = re.compile(r"\s*=+\s*NVSMI LOG\s*=+\s*")
_TEXT_GPU = re.compile(r"\s*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*")
_TEXT_FIELD = re.compile(r"( *)(\S[^:]{0,70}?)\s*(?::\s?(.*))?")
_XML_START = re.compile(r"\s*(?:<\?xml\b.*|<!DOCTYPE nvidia_smi_log.*|<nvidia_smi_log>.*|<gpu id=\".*)")
#: Elements of one GPU, by which a piece from the middle is told.
_XML_PIECE = re.compile(
    r"\s*<(?:clocks_(?:event|throttle)_reasons|fb_memory_usage|bar1_memory_usage|pci_gpu_link_info|pci_bridge_chip"
    r"|(?:gpu_)?power_readings|ecc_mode|ecc_errors|remapped_rows|retired_pages|temperature|inforom_version|mig_mode"
    r"|bridge_chip_type|encoder_stats|fbc_stats|replay_counter|gpu_virtualization_mode|product_name|product_brand|performance_state|persistence_mode)>.*"
)
#: What ends a GPU's list in all versions; ``-d`` shows sections without the name of the product.
_LAST = frozenset({"processes", "compute_processes"})
_XML_TAG = re.compile(r"<(/?)([a-z]\w{0,80})\b[^<>]{0,200}?(/?)>")


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


# --- the text ----------------------------------------------------------------------------------------


#: Names that only this output has, by which a piece from the middle of it is told; three of them must be near.
_OWN_NAMES = re.compile(
    r"\s+(?:Product (?:Name|Brand|Architecture)|GPU UUID|Minor Number|VBIOS Version|MultiGPU Board|Board ID"
    r"|(?:Board|GPU|FRU) Part Number|Inforom Version|Image Version|(?:OEM|ECC) Object|Power Management Object"
    r"|GPU (?:Operation|Virtualization) Mode|GSP Firmware Version|GPU Reset Status|GPU Link Info|PCIe Generation"
    r"|Link Width|Bridge Chip|Replays Since Reset|Replay Number Rollovers|Clocks (?:Throttle|Event) Reasons"
    r"|(?:FB|BAR1) Memory Usage|Ecc Mode|ECC Errors|Retired Pages|Pending Page Blacklist|Remapped Rows"
    r"|Remapping Failure Occurred|GPU (?:Current|Shutdown|Slowdown|Max Operating) Temp|(?:GPU )?Power Readings"
    r"|(?:Default|Enforced|Min|Max|Current) Power Limit|(?:Applications|Max|Max Customer Boost) Clocks"
    r"|HW (?:Thermal |Power Brake )?Slowdown|SW (?:Power Cap|Thermal Slowdown)|Sync Boost|CliqueId|ClusterUUID"
    r"|Texture (?:Memory|Shared)|L[12] Cache|CBU|SRAM (?:Parity|SEC-DED|Correctable|Uncorrectable.*))\s*(?::(?:\s.*)?)?"
)
_OWN_NEAR, _OWN_LEAST = 14, 3


_REASONS_HEAD = re.compile(r"Clocks (?:Throttle|Event) Reasons")


def _headless(lines: Lines, at: int) -> bool:
    """Tell whether a piece from the middle of the output begins here."""
    if not _OWN_NAMES.fullmatch(lines[at].text) and not _REASONS_HEAD.fullmatch(lines[at].text):
        return False
    near = {match[0].partition(":")[0].strip() for line in lines[at : at + _OWN_NEAR]
            if (match := _OWN_NAMES.fullmatch(line.text))}  # fmt: skip
    return len(near) + bool(_REASONS_HEAD.fullmatch(lines[at].text)) >= _OWN_LEAST


def _begins_text(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if re.match(r"\s*Attached GPUs\s+:\s", text):
        return any(_TEXT_GPU.fullmatch(line.text) for line in lines[at + 1 : at + 3])
    if _headless(lines, at):
        return True
    if _LOG.fullmatch(text):
        return True
    if _TEXT_GPU.fullmatch(text):
        return any(re.match(r"\s+[A-Z][\w ]+?\s*(?::\s|$)", line.text) for line in lines[at + 1 : at + 3])
    if re.match(r"\s*Driver Version\s+:\s", text):
        return any("Attached GPUs" in line.text or "CUDA Version" in line.text for line in lines[at + 1 : at + 3])
    return False


def _take_text(lines: Lines, at: int) -> Taken:
    general: Tree = {}
    gpus: list[tuple[str, Tree]] = []
    stack: list[tuple[int, Tree]] = [(-1, general)]
    end, empty, last, bare = at, 0, at, False
    if _headless(lines, at):
        gpus.append(("", {}))
        stack = [(-1, gpus[-1][1])]
    while end < len(lines):
        text = lines[end].text.expandtabs(4)
        if not text.strip():
            empty += 1
        elif (end > at and _LOG.fullmatch(text)) or is_prompt(text):
            break
        elif match := _TEXT_GPU.fullmatch(text):
            gpus.append((match[1], {}))
            stack, empty, last, bare = [(-1, gpus[-1][1])], 0, end, True
        elif not _LOG.fullmatch(text):
            match = _TEXT_FIELD.fullmatch(text)
            deep = bool(match) and (len(match[1]) > 0 or match[3] is not None or _opens(lines, end)) if match else False
            if not match or not deep or empty > 3:
                break
            _put(stack, len(match[1]), match[2], match[3])
            empty, last, bare = 0, end, not match[3]
        end += 1
    taken = _taken(last + 1, general, gpus, lines[last].number)
    if bare:
        taken.cut.append(Cut(lines[last].number, "nothing follows the last name"))
    return taken


def _opens(lines: Lines, at: int) -> bool:
    """Tell whether a name at the margin opens a group: an indented field is below it."""
    return at + 1 < len(lines) and bool(re.fullmatch(r"\s+[A-Z][\w ()/-]{1,60}?\s+:\s.*", lines[at + 1].text))


def _put(stack: list[tuple[int, Tree]], depth: int, name: str, value: str | None) -> None:
    """Hang a field below the last one that is indented less."""
    while len(stack) > 1 and stack[-1][0] >= depth:
        stack.pop()
    tree, key = stack[-1][1], _key(name)
    if value is not None:
        tree.setdefault(key, value.strip())
        stack.append((depth, tree))  # HW Slowdown has a value, and its own kinds below it
        return
    below = tree.get(key)
    below = below if isinstance(below, dict) else {}
    tree[key] = below
    stack.append((depth, below))


# --- the XML -----------------------------------------------------------------------------------------


def _begins_xml(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if "<" in text and _XML_PIECE.fullmatch(text):
        return sum(bool(_XML_TAG.search(line.text)) for line in lines[at : at + 4]) >= min(4, len(lines) - at)
    if "<" not in text or not _XML_START.fullmatch(text):
        return False
    return any("nvidia_smi_log" in line.text or "<product_name>" in line.text for line in lines[at : at + 6])


class _Xml:
    """Reads XML up to where it ends or breaks; declarations of entities are refused."""

    def __init__(self) -> None:
        self.general: Tree = {}
        self.gpus: list[tuple[str, Tree]] = []
        self.closed = self.refused = False
        self._stack: list[tuple[str, Tree]] = [("", self.general)]
        self._text: list[str] = []
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text.append
        self._parser.EntityDeclHandler = self._refuse

    def feed(self, text: str) -> bool:
        """Read more; tell whether it could be read."""
        try:
            self._parser.Parse(text.encode("utf-8", "replace"), False)
        except (expat.ExpatError, ValueError):
            return self.closed
        return True

    def _refuse(self, *_: object) -> None:
        self.refused = True
        raise ValueError("declares entities, which nvidia-smi does not")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._text.clear()
        if name == "gpu" and "id" in attributes:
            self.gpus.append((attributes["id"], {}))
            self._stack.append((name, self.gpus[-1][1]))
        elif name == "nvidia_smi_log" or len(self._stack) > 32:
            self._stack.append((name, self._stack[-1][1]))
        else:
            self._stack.append((name, {}))

    def _end(self, name: str) -> None:
        _, tree = self._stack.pop()
        said = " ".join("".join(self._text).split())
        self._text.clear()
        if name == "nvidia_smi_log":
            self.closed = True
        elif name != "gpu" and self._stack:
            self._stack[-1][1].setdefault(_key(name), tree or said)


def _take_xml(lines: Lines, at: int) -> Taken:
    reader, end = _Xml(), at
    piece = bool(_XML_PIECE.fullmatch(lines[at].text))
    if not any("<nvidia_smi_log" in line.text for line in lines[at : at + 4]):
        reader.feed("<nvidia_smi_log>")  # the head is cut off
    if piece:
        reader.feed('<gpu id="">')
    opened: list[str] = []
    while end < len(lines) and not reader.closed:
        text = lines[end].text
        if piece and not _balanced(text, opened):
            if "</nvidia_smi_log>" in text or "</gpu>" in text:
                end += 1
                break
            text = ""  # closes what was opened before the piece
        if (text.strip() and "<" not in text and ">" not in text and is_prompt(text)) or not reader.feed(text + "\n"):
            break
        end += 1
    taken = _taken(max(end, at + 1), reader.general, reader.gpus, lines[max(at, end - 1)].number)
    if not reader.closed:
        taken.cut.append(Cut(lines[min(end, len(lines) - 1)].number, "the XML ends or breaks before </nvidia_smi_log>"))
    return taken


def _balanced(text: str, opened: list[str]) -> bool:
    """Tell whether a line closes only what was opened; keep account of it."""
    here = list(opened)
    for match in _XML_TAG.finditer(text):
        if match[3]:
            continue
        if not match[1]:
            here.append(match[2])
        elif not here or here.pop() != match[2]:
            return False
    opened[:] = here
    return True


# --- the facts ---------------------------------------------------------------------------------------


def _taken(end: int, general: Tree, gpus: list[tuple[str, Tree]], last: int) -> Taken:
    attached = _whole(_get(general, "attached_gpus"))
    found = [_gpu(bus_id or _get(tree, "pci/bus_id", "pci/pci_bus_id"), tree) for bus_id, tree in gpus]
    facts = {
        "driver": _get(general, "driver_version"), "cuda": _get(general, "cuda_version"), "attached_gpus": attached,
        "gpus": found,
    }  # fmt: skip
    cut = []
    if attached is None:
        cut.append(Cut(last, "the head with the number of GPUs is missing"))
    elif attached != len(found):
        cut.append(Cut(last, f"{attached} GPUs are attached and {len(found)} are shown"))
    if found and len({len(str(tree)) > 600 for _, tree in gpus}) > 1:
        cut.append(Cut(last, f"of GPU {gpus[-1][0]} only the beginning is there"))
    elif gpus and "product_name" in gpus[-1][1] and not gpus[-1][1].keys() & _LAST:
        cut.append(Cut(last, "the processes with which a GPU's list ends are missing"))
    products = sorted({gpu["product"] for gpu in found if gpu["product"]})
    summary = f"{len(found)} GPUs ({', '.join(products[:3]) or 'unnamed'}), driver {facts['driver']}"
    return Taken(end, facts, summary, cut)


def _get(tree: Tree, *paths: str) -> Any:
    """Return what stands at the first of the paths (names joined by ``/``) that says something."""
    for path in paths:
        here: Any = tree
        for name in path.split("/"):
            here = here.get(name) if isinstance(here, dict) else None
        if isinstance(here, dict) and here:
            return here
        if isinstance(here, str) and not _NO_DATA.fullmatch(here):
            return here
    return None


def _whole(said: Any) -> int | None:
    match = re.match(r"-?\d{1,18}", said) if isinstance(said, str) else None
    return int(match[0]) if match else None


def _real(said: Any) -> float | None:
    match = re.match(r"-?\d{1,12}(?:\.\d{1,6})?", said) if isinstance(said, str) else None
    return float(match[0]) if match else None


def _yes(said: Any) -> bool | None:
    return {"yes": True, "no": False}.get(said.lower()) if isinstance(said, str) else None


def _gpu(bus_id: str | None, tree: Tree) -> dict[str, Any]:
    link = "pci/gpu_link_info", "pci/pci_gpu_link_info"
    power = "gpu_power_readings", "power_readings"

    def first(*names: str) -> Any:
        return _get(tree, *names)

    return {
        "bus_id": bus_id, "product": first("product_name"), "uuid": first("gpu_uuid", "uuid"),
        "architecture": first("product_architecture"), "serial": first("serial_number", "serial"),
        "vbios": first("vbios_version"), "gsp_firmware": first("gsp_firmware_version"),
        "persistence": first("persistence_mode"),
        "mig": first("mig_mode/current", "mig_mode/current_mig"),
        "mig_pending": first("mig_mode/pending", "mig_mode/pending_mig"),
        "ecc": first("ecc_mode/current", "ecc_mode/current_ecc"),
        "ecc_pending": first("ecc_mode/pending", "ecc_mode/pending_ecc"),
        "ecc_errors": _ecc(first("ecc_errors")),
        "remapped_rows": _remapped(first("remapped_rows")),
        "retired_pages_pending": _yes(
            first("retired_pages/pending_page_blacklist", "retired_pages/pending_retirement")),
        "performance_state": first("performance_state"),
        "pcie": {
            "generation_current": _whole(first(
                *(f"{place}/{name}" for place in link
                  for name in ("pcie_generation/current", "pcie_gen/current_link_gen")))),
            "generation_max": _whole(first(
                *(f"{place}/{name}" for place in link for name in ("pcie_generation/max", "pcie_gen/max_link_gen")))),
            "width_current": _whole(first(
                *(f"{place}/{name}" for place in link
                  for name in ("link_width/current", "link_widths/current_link_width")))),
            "width_max": _whole(first(
                *(f"{place}/{name}" for place in link for name in ("link_width/max", "link_widths/max_link_width")))),
            "replays": _whole(first("pci/replays_since_reset", "pci/replay_counter")),
        },
        "clocks_event_reasons": _reasons(first("clocks_event_reasons", "clocks_throttle_reasons")),
        "fabric": _fabric(first("fabric")),
        "recovery_action": _recovery(tree),
        "power_draw_w": _real(first(
            *(f"{place}/{name}" for place in power
              for name in ("average_power_draw", "instantaneous_power_draw", "power_draw", "instant_power_draw")))),
        "power_limit_w": _real(first(
            *(f"{place}/{name}" for place in power
              for name in ("current_power_limit", "enforced_power_limit", "power_limit")))),
        "power_limit_default_w": _real(first(*(f"{place}/default_power_limit" for place in power))),
        "power_limit_max_w": _real(first(*(f"{place}/max_power_limit" for place in power))),
        "temperature_c": _real(first("temperature/gpu_current_temp", "temperature/gpu_temp")),
        "temperature_limit_c": _real(first("temperature/gpu_t_limit_temp", "temperature/gpu_temp_tlimit")),
        "memory_total_mib": _whole(first("fb_memory_usage/total")),
        "memory_used_mib": _whole(first("fb_memory_usage/used")),
        "bar1_total_mib": _whole(first("bar1_memory_usage/total")),
        "utilization_gpu_percent": _whole(first("utilization/gpu", "utilization/gpu_util")),
    }  # fmt: skip


def _recovery(tree: Tree) -> str | None:
    """Return the action; ``None`` is a word of the tool here, not the lack of one."""
    said = _get(tree, "gpu_recovery_action", "recovery_action")
    return said if isinstance(said, str) else None


def _ecc(block: Any) -> dict[str, Any] | None:
    if not isinstance(block, dict):
        return None
    counted = {}
    for span in ("volatile", "aggregate"):
        said = block.get(span)
        if isinstance(said, dict):
            counted[span] = {name: _whole(value) for name, value in said.items() if isinstance(value, str)}
    return counted or None


def _remapped(block: Any) -> dict[str, Any] | None:
    if not isinstance(block, dict):
        return None
    return {
        "correctable": _whole(_get(block, "correctable_error", "remapped_row_corr")),
        "uncorrectable": _whole(_get(block, "uncorrectable_error", "remapped_row_unc")),
        "pending": _yes(_get(block, "pending", "remapped_row_pending")),
        "failure": _yes(_get(block, "remapping_failure_occurred", "remapped_row_failure")),
    }


def _reasons(block: Any) -> list[str] | None:
    """Return the reasons that are active, by their names in the text output, flattened."""
    if not isinstance(block, dict):
        return None
    active: list[str] = []
    for name, said in block.items():
        short = re.sub(r"^clocks_(?:event|throttle)_reason_", "", name)
        if isinstance(said, dict):
            active += _reasons(said) or []
        elif str(said).lower() == "active":
            active.append(_REASONS.get(short, short))
    return active


#: Names of the XML, and those of the text that they stand for.
_REASONS = {"gpu_idle": "idle", "hw_power_braking": "hw_power_brake_slowdown"}


def _fabric(block: Any) -> dict[str, Any] | None:
    if not isinstance(block, dict):
        return None
    health = block.get("health")
    told = health.items() if isinstance(health, dict) else ()
    return {
        "state": _get(block, "state"), "status": _get(block, "status"),
        "clique_id": _whole(_get(block, "cliqueid", "clique_id")),
        "cluster_uuid": _get(block, "clusteruuid", "cluster_uuid"),
        "health": {name: said for name, said in told if isinstance(said, str) and not _NO_DATA.fullmatch(said)} or None,
    }  # fmt: skip


KINDS = (
    Kind("nvidia-smi -q -x", _begins_xml, _take_xml),
    Kind("nvidia-smi -q", _begins_text, _take_text),
)
