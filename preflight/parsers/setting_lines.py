"""NCCL settings in scripts, command lines, images and manifests.

A value with a placeholder that a shell, a template or a user replaces (``$IFACE``, ``{{ .Values.hca }}``,
``<interface>``) is listed but not judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight._startup.lightclass import dataclass

#: Variable names of NCCL, RCCL, the aws-ofi-nccl plug-in and PyTorch's NCCL backend.
NAME = r"(?:NCCL|RCCL|TORCH_NCCL|OFI_NCCL)_[A-Z]\w{1,80}"

_BEFORE = r"(?:export|declare\s{1,4}-\w{1,4}|-x|-e|--env|-env|-genv|set|setenv|set\s-gx|ENV|%env|readonly|Environment=)"
_QUOTED = r"\"[^\"]{0,4000}\"|'[^']{0,4000}'"
_FILLED_IN = r"\S{0,200}(?:\$\([^)]{0,400}\)|\$\{[^}]{0,400}\}|\{\{[^}]{0,400}\}\})\S{0,200}"
#: ``NAME=value`` for a shell, with surrounding characters; ends with the value.
_SHELL = re.compile(
    rf"\s{{0,12}}(?:{_BEFORE}[\s=]\s{{0,4}}|Environment=)?[\"']?(?P<name>{NAME})=(?P<value>{_QUOTED}|{_FILLED_IN}|[^\s;&|\\\"']{{0,4000}})[\"']?"
    r"\s{0,4}(?:\\|[;|#].{0,400}|&&.{0,400})?\s{0,4}"
)
#: A name and a value with a space between them (csh, old Dockerfiles, mpiexec -genv), and Lmod's functions.
_APART = re.compile(
    rf"\s{{0,12}}(?:setenv|ENV|-genv|-env|set\s-gx)\s{{1,8}}(?P<name>{NAME})\s{{1,8}}(?P<value>{_QUOTED}|[^\s;\\=]{{1,4000}})\s{{0,4}}[;\\]?\s{{0,4}}"
    rf"|\s{{0,12}}(?:setenv|pushenv)\(\s?[\"'](?P<lmod>{NAME})[\"'],\s{{0,2}}(?P<held>{_QUOTED})\s?\);?\s{{0,4}}"
)
#: A mapping in YAML, JSON or Python, an element of the list that ``docker inspect`` prints, ``os.environ``.
_MAPPED = re.compile(
    rf"\s{{0,40}}(?:- )?(?P<q>[\"']?)(?P<name>{NAME})(?P=q)\s{{0,8}}:\s{{1,4}}"
    rf"(?P<value>{_QUOTED}|[^\s\"',#{{}}\[\]]{{1,400}})\s{{0,4}},?(?:\s{{1,4}}#.{{0,400}})?\s{{0,4}}"
    rf"|\s{{0,40}}\"(?P<listed>{NAME})=(?P<held>[^\"]{{0,4000}})\",?\s{{0,4}}"
    rf"|\s{{0,40}}- (?P<e>[\"']?)(?P<element>{NAME})=(?P<text>[^\s\"']{{0,4000}})(?P=e)\s{{0,4}}"
    rf"|\s{{0,40}}os\.environ(?:\[|\.setdefault\()[\"'](?P<python>{NAME})[\"'](?:\]\s{{0,4}}=|,)\s{{0,4}}"
    rf"(?P<given>{_QUOTED})\s{{0,2}}\)?\s{{0,4}}(?:#.{{0,400}})?"
)
#: ``- name: NAME`` in a pod's manifest; the value is on the next line, or before the closing brace.
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

#: A line that may occur in a list of settings: any variable, in any of the formats, or a comment.
_AMONG = re.compile(
    r"\s{0,12}(?:(?:export|declare\s{1,4}-\w{1,4}|-x|-e|--env|set|setenv|ENV|%env)[\s=]\s{0,4})?[A-Za-z_]\w{0,100}=.*|\s*#.*"
    r"|\s{0,40}- [\"']?[A-Za-z_]\w{0,100}=.*"
    r"|\s{0,60}(?:- )?\{?\s?[\"']?(?:name|value)[\"']?\s?:.*|\s{0,40}[\[\]{}],?\s*"
    r"|\s{0,40}(?:- )?[\"']?[A-Z][A-Z0-9_]{2,60}[\"']?\s{0,8}:\s.{0,400}|\s{0,40}\"[A-Z][A-Z0-9_]{2,60}=.*"
    r"|\s{0,12}(?:setenv|ENV)\s.*|os\.environ\b.*"
)

#: Several assignments on a line without any other text.
_ONE = rf"[A-Za-z_]\w{{1,80}}=(?:{_QUOTED}|[^\s;&|\\\"']{{0,4000}})"
_SEVERAL = re.compile(
    rf"\s{{0,12}}(?:(?:{_BEFORE})\s{{1,4}})?{_ONE}(?:\s{{1,8}}{_ONE}){{1,60}}\s{{0,4}}(?:;\s{{0,4}})?(?:#.{{0,400}})?"
)
_EACH = re.compile(rf"(?:^|(?<=\s))(?P<name>{NAME})=(?P<value>{_QUOTED}|[^\s;&|\\\"']{{0,4000}})")

#: Placeholders that have not been replaced.
_OPEN = re.compile(r"\$|`|\{\{|^<.*>$|^\[|\.\.\.|…|(?i:^x{2,}$|^your[-_]|^(?:iface|interface|hca)[-_]?(?:name)?$)")


@dataclass(frozen=True)
class ParsedAssignment:
    """A setting on a line; if ``is_literal``, NCCL reads exactly this value."""

    name: str
    value: str

    @property
    def is_literal(self) -> bool:
        """Whether the value has no placeholder."""
        return _OPEN.search(self.value) is None


def listed(line: str) -> ParsedAssignment | None:
    """Return the variable, of any name, that ``env`` or a shell printed on a line.

    ``export`` and ``declare`` quote values for a shell; in the output of ``env``, quotes are part of the value. None
    for any other line.
    """
    if not (match := _LISTED.fullmatch(line)):
        return None
    return ParsedAssignment(match["name"], _unquoted(match["value"]) if match["shell"] else match["value"])


def is_setting(line: str) -> bool:
    """Return whether a line is an NCCL setting, as opposed to a sentence about one."""
    assignment = listed(line)
    value = line.partition("=")[2].rstrip()
    is_value = value[:1] in ("'", '"') or " " not in value
    return assignment is not None and is_value and _NAME.fullmatch(assignment.name) is not None


def may_stand_among(line: str) -> bool:
    """Return whether a line may occur in a list of settings, NCCL's or others."""
    return _AMONG.fullmatch(line) is not None


def on_lines(line: str, after: str) -> ParsedAssignment | None:
    """Return the NCCL setting of a line; None if it has none.

    ``after`` is the next line, which may have the value.
    """
    if "CCL_" not in line:
        return None
    if match := _SHELL.fullmatch(line) or _APART.fullmatch(line) or _MAPPED.fullmatch(line):
        found = match.groupdict()
        name = next(found[key] for key in ("name", "lmod", "listed", "element", "python") if found.get(key))
        value = next((found[key] for key in ("value", "held", "text", "given") if found.get(key) is not None), "")
        return ParsedAssignment(name, _unquoted(value))
    if (named := _NAMED.fullmatch(line)) and (value_of := _VALUE.fullmatch(named["rest"].strip() or after)):
        return ParsedAssignment(named["name"], _unquoted(value_of["value"]))
    return None


#: A key of YAML that has its values on the next lines, or a variable in a mapping or list.
_ABOVE = re.compile(r"\s{0,40}(?:- )?(?:[\w.-]{1,60}:|[\"']?[A-Z][A-Z0-9_]{1,60}[\"']?(?:: |=)\S.{0,400})\s{0,4}")


def in_yaml(line: str, after: str, above: str) -> bool:
    """Return whether a line sets a variable in YAML, even if it is the only one.

    It is ``- name: NAME`` above ``value:``, or an indented element below a key or another variable.
    """
    if named := _NAMED.fullmatch(line):
        return _VALUE.fullmatch(named["rest"].strip() or after) is not None
    element = line.startswith((" ", "\t", "- ")) and _MAPPED.fullmatch(line) is not None
    return element and _ABOVE.fullmatch(above) is not None


def several(line: str) -> list[ParsedAssignment]:
    """Return the NCCL settings of a line of two or more assignments.

    Empty if the line has any other text.
    """
    if line.count("=") < 2 or "CCL_" not in line or not _SEVERAL.fullmatch(line):
        return []
    return [ParsedAssignment(match["name"], _unquoted(match["value"])) for match in _EACH.finditer(line)]


#: A setting within a command: ``mpirun -x A=B -x C=D``, ``docker run -e A=B``, ``A=B C=D python``,
#: ``--export=ALL,A=B``.
_WITHIN = re.compile(
    rf"(?:(?:^|(?<=[\s\"'=,]))(?:-x|-e|--env|-genv|-env|--export|export|-E)[\s=]{{1,4}}(?:ALL,)?|(?:^|(?<=[\s\"',])))[\"']?"
    rf"(?P<name>{NAME})=(?P<value>{_QUOTED}|(?:(?!,{NAME}=)[^\s;&|\\\"'`)]){{0,4000}})"
)
_PROGRAMS = (
    r"(?:mpirun|mpiexec|srun|sbatch|docker|podman|nerdctl|kubectl|torchrun|python3?|deepspeed|accelerate|horovodrun|enroot"
    r"|singularity|apptainer|vllm|ray|\w+_perf(?:_mpi)?)\s"
)
_COMMAND = re.compile(rf"\b{_PROGRAMS}")
_SET_FIRST = re.compile(rf"\s{{0,12}}(?:(?:ENV|export|-[xe])\s{{1,4}})?{NAME}=")


def in_command(text: str) -> Iterator[ParsedAssignment]:
    """Yield the NCCL settings of a one-line command; none for a sentence."""
    if _COMMAND.search(text + " ") or _SET_FIRST.match(text):
        yield from (ParsedAssignment(match["name"], _unquoted(match["value"])) for match in _WITHIN.finditer(text))


_STARTER = r"(?:(?:env|sudo|time|nohup|exec|export|CMD|RUN)\s{1,4}){0,4}"
#: A command from its first word: a prompt, assignments, programs that start another, a launcher or a program's path.
_FROM_FIRST = re.compile(
    rf"\s{{0,12}}(?:[\w@~:./-]{{0,80}}[$#>%]\s{{1,4}})?{_STARTER}(?:{_ONE}\s{{1,8}}){{0,60}}{_STARTER}(?:{_PROGRAMS}|\.{{0,2}}/\S)"
)


def begins_command(text: str) -> bool:
    """Return whether a line is a command from its first word on."""
    return _FROM_FIRST.match(text + " ") is not None


_ONE_NODE = re.compile(
    r"--standalone\b|--(?:nnodes|nodes|num_nodes)[= ]1(?:\s|$)|\b(?:srun|sbatch)\s(?:.{0,200}\s)?-N ?1(?:\s|$)"
)
_NODES = re.compile(r"--(?:nnodes|nodes|num_nodes)[= ]|\bsrun\b|\bmpi(?:run|exec)\b")


def on_one_node(command: str) -> bool:
    """Return whether a command starts the processes of one node only.

    A torchrun without ``--nnodes`` does so.
    """
    return bool(_ONE_NODE.search(command)) or ("torchrun " in command and not _NODES.search(command))


def _unquoted(value: str) -> str:
    """Remove one layer of shell quotes."""
    plain = value.strip()
    if len(plain) >= 2 and plain[0] == plain[-1] and plain[0] in "'\"":
        return re.sub(r"\\([\\\"$`])", r"\1", plain[1:-1]) if plain[0] == '"' else plain[1:-1]
    return plain
