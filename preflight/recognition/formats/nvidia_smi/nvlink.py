"""``nvidia-smi nvlink -s``: the rate of each NVLink of each GPU, per direction."""

from __future__ import annotations

import re

from preflight.parsers.text_block import block, stops_in
from preflight.recognition.detector import OutputFormat, ParsedPart, TextGap
from preflight.textprep.lines import Lines

#: What stands for the links where there is none, on a line of its own or behind the GPU.
_NO_LINKS = r"NVML: Unable to retrieve nvlink information.{0,60}|Device does not have or support nvlink"
_GPU = re.compile(
    rf"\s*GPU (\d{{1,3}}): (.{{0,99}}?\S)(?: \(UUID: ([\w.-]{{1,64}})\)?)?(?:\s*(?:{_NO_LINKS}))?\s*", re.IGNORECASE
)
_LINK = re.compile(
    r"\s*Link (\d{1,2}):\s*(?:(\d{1,4}(?:\.\d{1,4})?) GB/s|<?(?:inactive|disabled|sleep|off|down|unknown|n/a)>?)\s*",
    re.IGNORECASE,
)
_BEGUN = re.compile(r"\s*(?:Link \d{1,2}\b|GPU \d{1,3}:)")
_ALL_DOWN = re.compile(rf"\s*(?:{_NO_LINKS})\s*", re.IGNORECASE)


def _begins(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if _GPU.fullmatch(text):
        following = [line.text for line in lines[at + 1 : at + 3]]
        return any(_LINK.fullmatch(next_) or _ALL_DOWN.fullmatch(next_) for next_ in [text.split(") ")[-1], *following])
    return False


def _take(lines: Lines, at: int) -> ParsedPart:
    links: dict[str, list[float | None]] = {}
    names: dict[str, str] = {}
    uuids: dict[str, str | None] = {}
    seen: set[str] = set()
    gpu, cut = "", list[TextGap]()

    def belongs(text: str) -> bool:
        return bool(_GPU.fullmatch(text) or _LINK.fullmatch(text) or _ALL_DOWN.fullmatch(text))

    def again(text: str) -> bool:
        """A GPU that comes a second time is another run of the tool."""
        match = _GPU.fullmatch(text)
        known = bool(match) and text in seen
        seen.add(text)
        return known

    seen.add(lines[at].text)
    if at and any(_LINK.fullmatch(line.text) for line in lines[at - 1 : at]):
        cut.append(TextGap(lines[at].number, "the GPU that the links before this line belong to is missing"))
    end, taken = block(lines, at, belongs, again=again)
    for line in taken:
        if match := _GPU.fullmatch(line.text):
            gpu = f"GPU{match[1]}"
            links[gpu], names[gpu], uuids[gpu] = [], match[2], match[3]
        elif match := _LINK.fullmatch(line.text):
            number = int(match[1])
            known = links[gpu]
            if number > len(known):
                cut.append(TextGap(line.number, f"{gpu}: links {len(known)} to {number - 1} are missing"))
                known.extend([None] * (number - len(known)))
            del known[number:]
            known.append(float(match[2]) if match[2] else None)
    if stops_in(lines, end, _BEGUN):
        cut.append(TextGap(lines[end - 1].number, "the text stops within the next link"))
    most = max(map(len, links.values()), default=0)
    for gpu, known in links.items():
        if known and len(known) < most:
            cut.append(TextGap(taken[-1].number, f"{gpu} shows {len(known)} links, others {most}"))
    down = sum(rate is None for known in links.values() for rate in known)
    rates = sorted({rate for known in links.values() for rate in known if rate})
    facts = {"links": links, "names": names, "uuids": uuids}
    summary = f"{len(links)} GPUs with {most} NVLinks of {', '.join(f'{rate:g}' for rate in rates) or 'no'} GB/s"
    return ParsedPart(end, facts, f"{summary}, {down} inactive", cut)


KINDS = (OutputFormat("nvidia-smi nvlink -s", _begins, _take, hints=(":",)),)
