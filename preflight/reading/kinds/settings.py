"""NCCL's settings as a list: of ``env``, of a job's script, of ``mpirun -x`` on lines of their own."""

from __future__ import annotations

import re

from preflight.facts.nccl_lint import sources
from preflight.reading.blocks import block
from preflight.reading.lines import Lines
from preflight.reading.parts import Kind, Taken

NCCL_ENV = "nccl-env"

_SETTING = re.compile(
    r"\s{0,8}(?:export\s{1,4}|declare\s{1,4}-\w{1,4}\s{1,4}|-x\s{1,4}|set\s{1,4})?(?:NCCL|RCCL|TORCH_NCCL|OFI_NCCL)_[A-Z]\w{1,80}=(?:['\"].{0,4000}|\S{0,4000})\s*"
)
_ANY = re.compile(
    r"\s{0,8}(?:export\s{1,4}|declare\s{1,4}-\w{1,4}\s{1,4}|-x\s{1,4}|set\s{1,4})?[A-Za-z_]\w{0,100}=.*|\s*#.*"
)

#: Lines among which a second setting must be: one alone is a word in a sentence or a command.
_NEAR = 6


def _begins(lines: Lines, at: int) -> bool:
    if "CCL_" not in lines[at].text or not _SETTING.fullmatch(lines[at].text):
        return False
    near = [line for line in lines[at + 1 : at + _NEAR] if line.text.strip()]
    return not near or any(_SETTING.fullmatch(line.text) for line in near)


def _take(lines: Lines, at: int) -> Taken:
    end, taken = block(lines, at, lambda text: bool(_ANY.fullmatch(text)), blanks=1)
    told = sources.of_listing("\n".join(line.text for line in taken), "read")
    env = {} if told is None else {setting.name: setting.value for setting in told.settings}
    return Taken(end, {"env": env}, f"{len(env)} settings: {', '.join(list(env)[:6])}")


KINDS = (Kind(NCCL_ENV, _begins, _take),)
