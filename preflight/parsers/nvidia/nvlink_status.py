"""``nvidia-smi nvlink -s``: the rate of each GPU's NVLinks, per direction."""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block, stops_in
from preflight.textprep.lines import Line, Lines
from preflight.textprep.plain_text import normalize_text

NVLINK = "cmd:nvidia-smi nvlink -s"

#: Text printed instead of links if there are none, on a separate line or after the GPU.
_NO_LINKS = (
    r"NVML: Unable to retrieve nvlink information.{0,60}|Device does not have or support nvlink"
    r"|.{0,40}\ball links are inactive\b.{0,20}"
)
_GPU = re.compile(
    rf"\s*GPU (\d{{1,3}}): (.{{0,119}}?\S)(?: \(UUID: ([\w.-]{{1,64}})\)?)?(?:\s*(?:{_NO_LINKS}))?\s*", re.IGNORECASE
)
_LINK = re.compile(
    r"\s*Link (\d{1,3}):\s*(?:(\d{1,5}(?:\.\d{1,4})?) GB/s|<?(?:inactive|disabled|sleep|off|down|unknown|n/a)>?)\s*",
    re.IGNORECASE,
)
_BEGUN = re.compile(r"\s*(?:Link \d{1,2}\b|GPU \d{1,3}:)")
_ALL_DOWN = re.compile(rf"\s*(?:{_NO_LINKS})\s*", re.IGNORECASE)
_STATED = re.compile(rf"(?:{_NO_LINKS})\s*\Z", re.IGNORECASE)

#: Highest plausible link number; a higher one means that the text is damaged.
_MOST_LINKS = 64


@dataclass(frozen=True)
class GpuLinks:
    """The NVLinks that the text lists for one GPU."""

    index: int
    name: str
    uuid: str | None
    rates: tuple[float | None, ...]  # GB/s by link number, None if inactive; empty if the tool reports no link
    cut: bool = False  # links are missing from the text

    @property
    def up(self) -> tuple[bool, ...]:
        """Whether each link is active, by link number."""
        return tuple(rate is not None for rate in self.rates)

    @property
    def gbytes_s(self) -> float | None:
        """The rate of the slowest active link, per direction; None if none is active."""
        return min((rate for rate in self.rates if rate is not None), default=None)


@dataclass(frozen=True)
class Links:
    """The state and rate of one GPU's NVLinks."""

    up: tuple[bool, ...]  # by link number; empty if the tool reports no link
    gbytes_s: float | None  # rate of the slowest active link, per direction; None if none is active


def parse(text: str) -> dict[str, Links]:
    """Read the links of each GPU, by UUID; raises ValueError.

    A GPU without a UUID is left out.
    """
    lines = [Line(number, line) for number, line in enumerate(normalize_text(text).split("\n"), 1)]
    start = next((at for at, line in enumerate(lines) if line.text.strip()), 0)
    if not _GPU.fullmatch(lines[start].text):
        raise ValueError(f"{lines[start].text.strip()[:100]!r} begins the output; it should begin with a GPU")
    parsed = parse_lines(lines, start)
    rest = next((line for line in lines[parsed.end :] if line.text.strip()), None)
    if rest is not None:
        raise ValueError(f"{rest.text.strip()[:100]!r} is neither a GPU nor a link")
    gpus = parsed.required()
    return {gpu.uuid: Links(gpu.up, gpu.gbytes_s) for gpu in gpus if gpu.uuid is not None}


def begins(lines: Lines, at: int) -> bool:
    """Return whether the output begins at a line: a GPU, followed by its NVLinks."""
    text = lines[at].text
    if _GPU.fullmatch(text):
        following = [line.text for line in lines[at + 1 : at + 3]]
        return any(_LINK.fullmatch(next_) or _ALL_DOWN.fullmatch(next_) for next_ in [text.split(") ")[-1], *following])
    return False


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[GpuLinks, ...]]:
    """Read the links of all GPUs, starting at the line of the first one."""
    rates: dict[int, list[float | None]] = {}
    heads: dict[int, tuple[str, str | None]] = {}
    damaged: set[int] = set()
    seen: set[str] = set()  # GPU numbers
    gpu, gaps = -1, list[ParseGap]()

    def belongs(text: str) -> bool:
        return bool(_GPU.fullmatch(text) or _LINK.fullmatch(text) or _ALL_DOWN.fullmatch(text))

    def again(text: str) -> bool:
        """Return whether a GPU number is repeated: another run or node follows."""
        match = _GPU.fullmatch(text)
        shown = match is not None and match[1] in seen
        seen.update([match[1]] if match else ())
        return shown

    seen.update(match[1] for match in [_GPU.fullmatch(lines[at].text)] if match)
    if at and any(_LINK.fullmatch(line.text) for line in lines[at - 1 : at]):
        gaps.append(ParseGap(lines[at].number, "the GPU that the links before this line belong to is missing"))
    end, taken = block(lines, at, belongs, again=again)
    for line in taken:
        if match := _GPU.fullmatch(line.text):
            gpu = int(match[1])
            rates[gpu], heads[gpu] = [], (match[2], match[3])
        elif match := _LINK.fullmatch(line.text):
            number, shown = int(match[1]), rates[gpu]
            if number != len(shown):
                damaged.add(gpu)
            if number > _MOST_LINKS:
                gaps.append(ParseGap(line.number, f"GPU{gpu}: link number {number} is implausible"))
                continue
            if number > len(shown):
                gaps.append(ParseGap(line.number, f"GPU{gpu}: links {len(shown)} to {number - 1} are missing"))
                shown.extend([None] * (number - len(shown)))
            elif number < len(shown):
                gaps.append(ParseGap(line.number, f"GPU{gpu}: link {number} occurs twice"))
            del shown[number:]
            shown.append(float(match[2]) if match[2] else None)
    if stops_in(lines, end, _BEGUN):
        gaps.append(ParseGap(lines[end - 1].number, "the text stops within the next link"))
        damaged.update(() if rates[gpu] else (gpu,))
    if _stops_at_head(lines, end, taken[-1].text, heads):
        damaged.add(gpu)
        gaps.append(ParseGap(taken[-1].number, f"the text stops before the links of GPU{gpu}"))
    lengths = {name: max(len(rates[gpu]) for gpu in rates if heads[gpu][0] == name) for name, _ in heads.values()}
    for gpu, shown in rates.items():
        most = lengths[heads[gpu][0]]
        if shown and len(shown) < most:
            damaged.add(gpu)
            gaps.append(ParseGap(taken[-1].number, f"GPU{gpu} shows {len(shown)} links, its peers {most}"))
    value = tuple(GpuLinks(gpu, *heads[gpu], tuple(shown), gpu in damaged) for gpu, shown in rates.items())
    return Parsed(value, tuple(gaps), end)


def _stops_at_head(lines: Lines, end: int, last: str, heads: Mapping[int, tuple[str, str | None]]) -> bool:
    """Return whether the text ends before the links of a GPU that should have some.

    The last line is then its heading, which lacks the UUID that other GPUs have, or has the name of a preceding GPU or
    the start of such a name.
    """
    if any(line.text.strip() for line in lines[end:]) or not _GPU.fullmatch(last) or _STATED.search(last):
        return False
    *before, (name, uuid) = heads.values()
    return any((uuid is None and other is not None) or kind.startswith(name) for kind, other in before)


HINTS = (":",)
