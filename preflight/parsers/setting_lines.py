"""NCCL settings in scripts, command lines, images and manifests.

A placeholder that a shell, a template or a reader will replace (``$IFACE``, ``{{ .Values.hca }}``, ``<interface>``) is
listed but not judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight._startup.lightclass import dataclass

#: Names of NCCL, its plug-ins or its framework.
NAME = r"(?:NCCL|RCCL|TORCH_NCCL|OFI_NCCL)_[A-Z]\w{1,80}"

_BEFORE = r"(?:export|declare\s{1,4}-\w{1,4}|-x|-e|--env|-env|-genv|set|setenv|set\s-gx|ENV|%env|readonly|Environment=)"
_QUOTED = r"\"[^\"]{0,4000}\"|'[^']{0,4000}'"
_FILLED_IN = r"\S{0,200}(?:\$\([^)]{0,400}\)|\$\{[^}]{0,400}\}|\{\{[^}]{0,400}\}\})\S{0,200}"
#: ``NAME=value`` for a shell, with surrounding characters; ends with the value.
_SHELL = re.compile(
    rf"\s{{0,12}}(?:{_BEFORE}[\s=]\s{{0,4}}|Environment=)?[\"']?(?P<name>{NAME})=(?P<value>{_QUOTED}|{_FILLED_IN}|[^\s;&|\\\"']{{0,4000}})[\"']?"
    r"\s{0,4}(?:\\|[;|#].{0,400}|&&.{0,400})?\s{0,4}"
)
#: With a blank in between: csh, old Dockerfiles, Lmod, mpiexec -genv.
_APART = re.compile(
    rf"\s{{0,12}}(?:setenv|ENV|-genv|-env|set\s-gx)\s{{1,8}}(?P<name>{NAME})\s{{1,8}}(?P<value>{_QUOTED}|[^\s;\\=]{{1,4000}})\s{{0,4}}[;\\]?\s{{0,4}}"
    rf"|\s{{0,12}}(?:setenv|pushenv)\(\s?[\"'](?P<lmod>{NAME})[\"'],\s{{0,2}}(?P<held>{_QUOTED})\s?\);?\s{{0,4}}"
)
#: A mapping in YAML, JSON or Python, an element of the list that ``docker inspect`` prints, ``os.environ``.
_MAPPED = re.compile(
    rf"\s{{0,40}}(?:- )?(?P<q>[\"']?)(?P<name>{NAME})(?P=q)\s{{0,8}}:\s{{1,4}}"
    rf"(?P<value>{_QUOTED}|[^\s\"',#{{}}\[\]]{{1,400}})\s{{0,4}},?(?:\s{{1,4}}#.{{0,400}})?\s{{0,4}}"
    rf"|\s{{0,40}}\"(?P<listed>{NAME})=(?P<held>[^\"]{{0,4000}})\",?\s{{0,4}}"
    rf"|\s{{0,40}}os\.environ(?:\[|\.setdefault\()[\"'](?P<python>{NAME})[\"'](?:\]\s{{0,4}}=|,)\s{{0,4}}"
    rf"(?P<given>{_QUOTED})\s{{0,2}}\)?\s{{0,4}}(?:#.{{0,400}})?"
)
#: ``- name: NAME`` of a pod; the value is on the next line, or before the closing brace.
_NAMED = re.compile(
    rf"\s{{0,60}}(?:- )?\{{?\s?[\"']?name[\"']?\s?:\s?[\"']?(?P<name>{NAME})[\"']?\s?,?(?P<rest>.{{0,4000}})"
)
_VALUE = re.compile(
    r"\s{0,60}[\"']?value[\"']?\s?:\s?(?P<value>\"[^\"]{0,4000}\"|'[^']{0,4000}'|[^\s}#]{0,4000}?)[\s,}]{0,8}(?:#.{0,400})?"
)

#: Output of ``env``, ``export -p`` and ``declare -x``; the value may be any text.
_LISTED = re.compile(
    r"\s{0,8}(?P<shell>export\s{1,4}|declare\s{1,4}-\w{1,4}\s{1,4}|-x\s{1,4}|set\s{1,4})?"
    r"(?P<name>[A-Za-z]\w{1,100})=(?P<value>.*)"
)
_NAME = re.compile(NAME)

#: A line that may occur among settings: other names, in any of the formats.
_AMONG = re.compile(
    r"\s{0,12}(?:(?:export|declare\s{1,4}-\w{1,4}|-x|-e|--env|set|setenv|ENV|%env)[\s=]\s{0,4})?[A-Za-z_]\w{0,100}=.*|\s*#.*"
    r"|\s{0,60}(?:- )?\{?\s?[\"']?(?:name|value)[\"']?\s?:.*|\s{0,40}[\[\]{}],?\s*"
    r"|\s{0,40}(?:- )?[\"']?[A-Z][A-Z0-9_]{2,60}[\"']?\s{0,8}:\s.{0,400}|\s{0,40}\"[A-Z][A-Z0-9_]{2,60}=.*"
    r"|\s{0,12}(?:setenv|ENV)\s.*|os\.environ\b.*"
)

#: Several of them in a row, without any other text on the line.
_ONE = rf"[A-Za-z_]\w{{1,80}}=(?:{_QUOTED}|[^\s;&|\\\"']{{0,4000}})"
_SEVERAL = re.compile(
    rf"\s{{0,12}}(?:(?:{_BEFORE})\s{{1,4}})?{_ONE}(?:\s{{1,8}}{_ONE}){{1,60}}\s{{0,4}}(?:;\s{{0,4}})?(?:#.{{0,400}})?"
)
_EACH = re.compile(rf"(?:^|(?<=\s))(?P<name>{NAME})=(?P<value>{_QUOTED}|[^\s;&|\\\"']{{0,4000}})")

#: Placeholders that have not been replaced.
_OPEN = re.compile(r"\$|`|\{\{|^<.*>$|^\[|\.\.\.|…|(?i:^x{2,}$|^your[-_]|^(?:iface|interface|hca)[-_]?(?:name)?$)")


@dataclass(frozen=True)
class ParsedAssignment:
    """One setting on a line; ``is_literal``: NCCL will read exactly this value."""

    name: str
    value: str

    @property
    def is_literal(self) -> bool:
        """Whether the value has no placeholder."""
        return _OPEN.search(self.value) is None


def listed(line: str) -> ParsedAssignment | None:
    """Return the setting of any name that ``env`` or a shell printed.

    ``export`` and ``declare`` quote values for a shell; in ``env``, quotes are part of the value.
    """
    if not (match := _LISTED.fullmatch(line)):
        return None
    return ParsedAssignment(match["name"], _unquoted(match["value"]) if match["shell"] else match["value"])


def is_setting(line: str) -> bool:
    """Return whether a line is one setting of NCCL, and not a sentence about it."""
    assignment = listed(line)
    value = line.partition("=")[2].rstrip()
    is_value = value[:1] in ("'", '"') or " " not in value
    return assignment is not None and is_value and _NAME.fullmatch(assignment.name) is not None


def may_stand_among(line: str) -> bool:
    """Return whether a line may be one of a list of settings, of NCCL or not."""
    return _AMONG.fullmatch(line) is not None


def on_lines(line: str, after: str) -> ParsedAssignment | None:
    """Return the setting of a line; None if it has none.

    The value may be on the next line.
    """
    if "CCL_" not in line:
        return None
    if match := _SHELL.fullmatch(line) or _APART.fullmatch(line) or _MAPPED.fullmatch(line):
        found = match.groupdict()
        name = next(found[key] for key in ("name", "lmod", "listed", "python") if found.get(key))
        value = next((found[key] for key in ("value", "held", "given") if found.get(key) is not None), "")
        return ParsedAssignment(name, _unquoted(value))
    if (named := _NAMED.fullmatch(line)) and (value_of := _VALUE.fullmatch(named["rest"].strip() or after)):
        return ParsedAssignment(named["name"], _unquoted(value_of["value"]))
    return None


def several(line: str) -> list[ParsedAssignment]:
    """Return the settings of a line with at least two assignments and no other text.

    Empty for any other line.
    """
    if line.count("=") < 2 or "CCL_" not in line or not _SEVERAL.fullmatch(line):
        return []
    return [ParsedAssignment(match["name"], _unquoted(match["value"])) for match in _EACH.finditer(line)]


#: Settings within a command: ``mpirun -x A=B -x C=D``, ``docker run -e A=B``, ``A=B C=D python``, ``--export=ALL,A=B``.
_WITHIN = re.compile(
    rf"(?:(?:^|(?<=[\s\"'=,]))(?:-x|-e|--env|-genv|-env|--export|export|-E)[\s=]{{1,4}}(?:ALL,)?|(?:^|(?<=[\s\"',])))[\"']?"
    rf"(?P<name>{NAME})=(?P<value>{_QUOTED}|(?:(?!,{NAME}=)[^\s;&|\\\"'`)]){{0,4000}})"
)
_COMMAND = re.compile(
    r"\b(?:mpirun|mpiexec|srun|sbatch|docker|podman|nerdctl|kubectl|torchrun|python3?|deepspeed|accelerate|horovodrun|enroot|singularity"
    r"|apptainer|vllm|ray|\w+_perf(?:_mpi)?)\s"
)
_SET_FIRST = re.compile(rf"\s{{0,12}}(?:(?:ENV|export|-[xe])\s{{1,4}})?{NAME}=")


def in_command(text: str) -> Iterator[ParsedAssignment]:
    """Yield the settings of a one-line command; none for a sentence."""
    if _COMMAND.search(text + " ") or _SET_FIRST.match(text):
        yield from (ParsedAssignment(match["name"], _unquoted(match["value"])) for match in _WITHIN.finditer(text))


def _unquoted(value: str) -> str:
    """Remove one layer of a shell's quotes."""
    plain = value.strip()
    if len(plain) >= 2 and plain[0] == plain[-1] and plain[0] in "'\"":
        return re.sub(r"\\([\\\"$`])", r"\1", plain[1:-1]) if plain[0] == '"' else plain[1:-1]
    return plain
