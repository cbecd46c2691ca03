"""The XML of ``nvidia-smi -q -x``, up to its end or first error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.parsers import expat

from preflight.parsers.nvidia.query_log import DEEPEST, QueryLog, Tree, gaps, key
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines

_XML_START = re.compile(r"\s*(?:<\?xml\b.*|<!DOCTYPE nvidia_smi_log.*|<nvidia_smi_log>.*|<gpu id=\".*)")
#: Elements within a GPU that identify an excerpt.
_XML_PIECE = re.compile(
    r"\s*<(?:clocks_(?:event|throttle)_reasons|fb_memory_usage|bar1_memory_usage|pci_gpu_link_info|pci_bridge_chip"
    r"|(?:gpu_)?power_readings|ecc_mode|ecc_errors|remapped_rows|retired_pages|temperature|inforom_version|mig_mode"
    r"|bridge_chip_type|encoder_stats|fbc_stats|replay_counter|gpu_virtualization_mode|product_name|product_brand|performance_state|persistence_mode)>.*"
)
_DECLARATION = re.compile(r"^\s*<\?xml\b[^<>]{0,100}\?>")
_XML_TAG = re.compile(r"<(/?)([a-z]\w{0,80})\b[^<>]{0,200}?(/?)>")


#: A line after which no text of an element follows, unlike a start tag (``<mig_devices>``, with ``None`` below it).
_XML_CLOSED = re.compile(r".*(?:</[\w.-]{1,80}|/|\?)>\s*")
#: Maximum consecutive lines without a tag.
_LOOSE = 2
#: Maximum lines of one GPU, and number of lines of an excerpt within which an element must identify it.
_PIECE, _AHEAD = 400, 12
_XML_LEAF = re.compile(r"\s*(?:<([a-z]\w{1,60})>[^<>]{0,100}</\1>|</[a-z]\w{1,60}>|<[a-z]\w{1,60}\s?/>)\s*")


def begins(lines: Lines, at: int) -> bool:
    """Return whether the document, or an excerpt from a GPU, starts at a line."""
    text = lines[at].text
    if "<" in text and _XML_PIECE.fullmatch(text):
        return sum(bool(_XML_TAG.search(line.text)) for line in lines[at : at + 4]) >= min(4, len(lines) - at)
    if "<" not in text:
        return False
    if _within(text) is not None:
        return True
    if _XML_LEAF.fullmatch(text):
        return _leads_to_piece(lines, at)
    if not _XML_START.fullmatch(text):
        return False
    return any("nvidia_smi_log" in line.text or "<product_name>" in line.text for line in lines[at : at + 6])


def _within(text: str) -> int | None:
    """Return the index of a document that follows its command on a line, or None."""
    found = text.rfind("<nvidia_smi_log>", 0, max(0, text.find("<driver_version>")))
    return found if found >= 0 else None


def _leads_to_piece(lines: Lines, at: int) -> bool:
    """Return whether only leaf elements and end tags precede an identifying element."""
    for line in lines[at + 1 : at + _AHEAD]:
        if _XML_PIECE.fullmatch(line.text):
            return True
        if not _XML_LEAF.fullmatch(line.text):
            return False
    return False


#: Elements that occur several times per GPU.
_REPEATED = frozenset({"process_info", "mig_device"})


#: The element of a GPU, with its address.
_GPU = re.compile(r'<gpu id="([^"\n]{1,40})"')


def last_gpu(lines: Sequence[str]) -> str:
    """Return the address of the last GPU that starts in the lines; empty if none."""
    return next((begun[-1] for line in reversed(lines) if (begun := _GPU.findall(line))), "")


class _Xml:
    """Reader of XML up to its end or first error; it rejects entity declarations."""

    def __init__(self) -> None:
        self.general: Tree = {}
        self.gpus: list[tuple[str, Tree]] = []
        self.closed = self.refused = False
        self.broken_at: int | None = None  # line number of the first error
        self._stack: list[tuple[str, Tree]] = [("", self.general)]
        self._text: list[str] = []
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text.append
        self._parser.EntityDeclHandler = self._refuse

    def feed(self, text: str) -> bool:
        """Parse more text; return False if an error precedes the end of the document."""
        try:
            self._parser.Parse(text.encode("utf-8", "replace"), False)
        except expat.ExpatError as error:
            self.broken_at = error.lineno
            return self.closed
        except ValueError:
            return self.closed
        return True

    def _refuse(self, *_: object) -> None:
        self.refused = True
        raise ValueError("declares entities, which nvidia-smi does not")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._text.clear()
        if name == "gpu":
            self.gpus.append((attributes.get("id", ""), {}))
            self._stack.append((name, self.gpus[-1][1]))
        elif name == "nvidia_smi_log":
            self._stack.append((name, self._stack[-1][1]))
        else:
            self._stack.append((name, {}))

    def _end(self, name: str) -> None:
        _, tree = self._stack.pop()
        text = " ".join("".join(self._text).split())
        self._text.clear()
        if name == "nvidia_smi_log":
            self.closed = True
        elif name in _REPEATED and self._stack:
            listed = self._stack[-1][1].setdefault(key(name), [])
            if isinstance(listed, list):
                listed.append(tree)
        elif name != "gpu" and 0 < len(self._stack) <= DEEPEST:
            self._stack[-1][1].setdefault(key(name), tree or text)

    def finish(self) -> None:
        """Store the content of elements whose end tags are missing."""
        while len(self._stack) > 1:
            name, tree = self._stack.pop()
            if name not in ("gpu", "nvidia_smi_log") and tree and len(self._stack) <= DEEPEST:
                self._stack[-1][1].setdefault(key(name), tree)


def parse_lines(lines: Lines, at: int) -> Parsed[QueryLog]:
    """Read the document that starts at a line, to its end or first error."""
    reader, end = _Xml(), at
    piece = bool(_XML_PIECE.fullmatch(lines[at].text) or _XML_LEAF.fullmatch(lines[at].text))
    if not any("<nvidia_smi_log" in line.text for line in lines[at : at + 4]):
        reader.feed("<nvidia_smi_log>")  # the start tag is missing
    opened = _lost(lines, at) if piece else []
    if piece:
        reader.feed('<gpu id="">' + "".join(f"<{name}>" for name in opened))
    loose = 0  # consecutive lines without a tag, as in a broken line
    within = _within(lines[at].text)
    while end < len(lines) and not reader.closed:
        text = lines[end].text
        if within is not None and end == at:
            text = text[within:]
        if text.strip() and "<" not in text and ">" not in text:
            if loose == _LOOSE or _XML_CLOSED.fullmatch(lines[end - 1].text):
                end -= loose
                break
            loose += 1
        elif text.strip():
            loose = 0
        if piece and not _balanced(text, opened):
            if "</nvidia_smi_log>" in text or "</gpu>" in text:
                end += 1
                break
            text = ""  # closes elements that were opened before the excerpt
        text = _DECLARATION.sub("", text)  # XML allows it only at the very start
        if (text.strip() and "<" not in text and ">" not in text and is_prompt(text)) or not reader.feed(text + "\n"):
            break
        end += 1
    reader.finish()
    log = QueryLog(reader.general, tuple(reader.gpus))
    found = gaps(log, lines[max(at, end - 1)].number)
    if not reader.closed:
        found.append(
            ParseGap(lines[min(end, len(lines) - 1)].number, "the XML ends or breaks before </nvidia_smi_log>")
        )
    return Parsed(log, tuple(found), max(end, at + 1))


def parse(document: str) -> QueryLog:
    """Read a complete document; raises ValueError.

    The error's text is the number of the line at which the document ends or breaks.
    """
    reader = _Xml()
    if not reader.feed(document) or not reader.closed:
        raise ValueError(str(reader.broken_at or document.count("\n") + 1))
    return QueryLog(reader.general, tuple(reader.gpus))


def _lost(lines: Lines, at: int) -> list[str]:
    """Return the elements that enclose an excerpt, outermost first.

    The excerpt contains their end tags, but not their start tags.
    """
    opened: list[str] = []
    lost: list[str] = []
    for line in lines[at : at + _PIECE]:
        for match in _XML_TAG.finditer(line.text):
            if match[3]:
                continue
            if not match[1]:
                opened.append(match[2])
            elif opened:
                if opened.pop() != match[2]:
                    return []
            elif match[2] in ("gpu", "nvidia_smi_log"):
                return lost[::-1]
            else:
                lost.append(match[2])
    return lost[::-1]


def _balanced(text: str, opened: list[str]) -> bool:
    """Update the open elements; return whether a line closes only open ones."""
    before, closed = len(opened), list[str]()  # number of elements open before the line, and elements that it closes
    for match in _XML_TAG.finditer(text):
        if match[3]:
            continue
        if not match[1]:
            opened.append(match[2])
        elif not opened or opened[-1] != match[2]:
            opened[before:] = reversed(closed)
            return False
        elif len(opened) > before:
            opened.pop()
        else:
            closed.append(opened.pop())
            before -= 1
    return True


HINTS = ("<",)
