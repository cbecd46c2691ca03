"""Options of launchers: the number of ranks, and their distribution over nodes.

Short options are read only after the name of their command, since other programs use the same letters. Sources:
``torchrun --help``; Slurm, ``man srun`` and ``man sbatch``; Open MPI, ``man mpirun``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from preflight._startup.lightclass import dataclass
from preflight.parsers.job_config.settings import JobSetting

#: Commands with short options that are read, and programs after which they are no longer read.
_SLURM, _MPI = frozenset({"srun", "sbatch", "SBATCH", "salloc"}), frozenset({"mpirun", "mpiexec", "orterun", "prterun"})
_PROGRAMS = frozenset({"torchrun", "python", "python3", "deepspeed", "accelerate", "bash", "sh", "apptainer"})

#: Options of launchers, and their meanings.
_SLURM_SHORT = {"-N": "slurm_nodes", "-n": "slurm_tasks", "-G": "slurm_gpus", "-m": "distribution"}
_MPI_SHORT = {"-np": "mpi_ranks", "-n": "mpi_ranks", "-c": "mpi_ranks", "-N": "mpi_per_node", "-ppn": "mpi_per_node",
              "-npernode": "mpi_per_node", "-H": "mpi_hosts", "-host": "mpi_hosts"}  # fmt: skip
_LONG = {
    "--nproc_per_node": "processes", "--nproc-per-node": "processes", "--num_gpus": "processes",
    "--nnodes": "torch_nodes", "--num_nodes": "torch_nodes", "--num_machines": "torch_nodes",
    "--num_processes": "accelerate_ranks",
    "--nodes": "slurm_nodes", "--ntasks": "slurm_tasks", "--ntasks-per-node": "slurm_tasks_per_node",
    "--gpus-per-node": "slurm_gpus_per_node", "--gres": "slurm_gpus_per_node", "--gpus": "slurm_gpus",
    "--np": "mpi_ranks", "--npernode": "mpi_per_node", "--host": "mpi_hosts", "--map-by": "mpi_mapping",
    "-map-by": "mpi_mapping", "--rank-by": "mpi_ranking", "-rank-by": "mpi_ranking", "--bynode": "mpi_mapping",
    "--distribution": "distribution",
}  # fmt: skip

#: Variables that Slurm sets for a job, each with the meaning of the option that has the same number.
_SET_BY_SLURM = {
    "SLURM_NNODES": "slurm_nodes", "SLURM_JOB_NUM_NODES": "slurm_nodes", "SLURM_NTASKS": "slurm_tasks",
    "SLURM_NPROCS": "slurm_tasks", "SLURM_NTASKS_PER_NODE": "slurm_tasks_per_node",
    "SLURM_GPUS_ON_NODE": "slurm_gpus_per_node", "SLURM_GPUS_PER_NODE": "slurm_gpus_per_node",
}  # fmt: skip
_VARIABLE = re.compile(r"\$\{?(\w+)(?::?-[^{}]*)?\}?")
_NUMBER = re.compile(r"(\d{1,7})", re.ASCII)
_LAST_NUMBER = re.compile(r"(?:[\w.+-]*:)*(\d{1,7})(?:\([^)]*\))?")  # gpu:h100:8, 8, h100:8
_PER_RESOURCE = re.compile(r"ppr:(\d{1,4}):(?:node|host)\b.*")


#: The options read so far: numbers, words, unreadable options, gaps.
_State = tuple[dict[str, JobSetting], dict[str, tuple[str, str]], dict[str, str], list[str]]


@dataclass(frozen=True)
class Launch:
    """The settings that a script's launchers state, and those that are unreadable."""

    settings: Mapping[str, JobSetting]
    gaps: tuple[str, ...]
    unread: frozenset[str]
    consecutive: bool  # the launcher of each node gives its ranks consecutive numbers


class Launchers:
    """Collects the options of launchers in the order of a script."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._command = ""
        self._stated: dict[str, JobSetting] = {}
        self._words: dict[str, tuple[str, str]] = {}  # meaning -> text and location
        self._unread: dict[str, str] = {}
        self._gaps: list[str] = []
        self._of_script: _State | None = None  # the options outside the steps
        self._rank = 0  # of the current step: 2 with options of a model, 1 if it starts a program of _PROGRAMS
        self._best: tuple[int, _State] | None = None  # rank and options of the best step so far

    def command(self, word: str) -> None:
        """Note a word that is not an option; a known command's short options follow it.

        After a Slurm command, any other word is the program that it starts, and ends its options. This does not apply
        to mpirun, whose options take several words.
        """
        name = PurePosixPath(word).name if "/" in word else word
        if name == "srun":
            self._begin_step()
        if name in _PROGRAMS or name.startswith("python3."):
            self._rank = max(self._rank, 1)
        if name in _SLURM or name in _MPI or name in _PROGRAMS:
            self._command = name
        elif self._command in _SLURM and not name.startswith("$"):
            self._command = ""

    def _begin_step(self) -> None:
        """Begin a step of srun, to which the options of other steps do not apply."""
        self._end_step()
        if self._of_script is None:
            self._of_script = self._state()
        self._rank = 0
        self._restore(self._of_script)

    def _end_step(self) -> None:
        if self._of_script is not None and (self._best is None or self._rank >= self._best[0]):
            self._best = self._rank, self._state()

    def model_option(self) -> None:
        """Note that the current step has options of a model, so it runs the job."""
        self._rank = 2

    def _state(self) -> _State:
        return dict(self._stated), dict(self._words), dict(self._unread), list(self._gaps)

    def _restore(self, state: _State) -> None:
        stated, words, unread, gaps = state
        self._stated, self._words, self._unread, self._gaps = dict(stated), dict(words), dict(unread), list(gaps)

    def option(self, option: str, value: str, line: int) -> bool:
        """Read an option; return whether it belongs to a launcher."""
        meaning = _LONG.get(option)
        if meaning is None:
            meaning, value = self._short(option, value)
        if meaning is None:
            return False
        where = f"{self._source}:{line}: {option}"
        if option == "--bynode":
            value = "node"
        if meaning in ("mpi_hosts", "mpi_mapping", "mpi_ranking", "distribution"):
            self._words[meaning] = (value, where)
        else:
            self._number(meaning, value, where)
        return True

    def _short(self, option: str, value: str) -> tuple[str | None, str]:
        names = _SLURM_SHORT if self._command in _SLURM else _MPI_SHORT if self._command in _MPI else {}
        if option in names:
            return names[option], value
        if self._command in _SLURM and re.fullmatch(r"-[NnG]\d{1,7}", option):
            return _SLURM_SHORT[option[:2]], option[2:]
        return None, value

    def _number(self, meaning: str, value: str, where: str) -> None:
        if variable := _VARIABLE.fullmatch(value):
            source = _SET_BY_SLURM.get(variable[1])
            if source is not None and (stated := self._stated.get(source)) is not None:
                self._stated[meaning] = JobSetting(stated.value, f"{where}: {variable[1]}, {stated.origin}")
                return
            if source is not None and meaning.startswith("slurm"):
                return
        if value in ("gpu", "auto") and meaning == "processes":  # as many as the node has GPUs
            return
        number = (_LAST_NUMBER if meaning.startswith("slurm_gpus") else _NUMBER).fullmatch(value)
        if meaning == "slurm_gpus_per_node" and where.endswith("--gres") and not value.startswith("gpu"):
            return
        if number is None or not int(number[1]):
            self._unread[meaning] = where
            self._gaps.append(f"{where}: {repr(value[:40]) if value else 'an empty value'} is not a number")
            return
        new = int(number[1])
        if (old := self._stated.get(meaning)) is not None and old.value != new:
            self._gaps.append(f"{where}: {new} replaces {old.value} ({old.origin})")
        self._stated[meaning] = JobSetting(new, where)
        self._unread.pop(meaning, None)

    def slurm_environment(self) -> dict[str, str]:
        """Return the variables that Slurm sets because of the options."""
        return {name: str(self._stated[own].value) for name, own in _SET_BY_SLURM.items() if own in self._stated}

    def launch(self) -> Launch:
        """Return the settings that follow from the options.

        The job is the last step with options of a model, or, if there is none, the last step that starts Python,
        torchrun or another program of _PROGRAMS.
        """
        self._end_step()
        if self._best is not None:
            self._restore(self._best[1])
        settings = dict(self._settings())
        unread = set()
        if any(name in self._unread for name in ("torch_nodes", "slurm_nodes")) and "nodes" not in settings:
            unread.add("nodes")
        if any(name in self._unread for name in ("processes", "slurm_gpus_per_node")) and (
            "gpus_per_node" not in settings
        ):
            unread.add("gpus_per_node")
        if "mpi_ranks" in self._unread or ("slurm_tasks" in self._unread and "gpus" not in settings):
            unread.add("gpus")
        return Launch(
            settings,
            tuple(self._gaps),
            frozenset(unread),
            bool({"processes", "accelerate_ranks"} & self._stated.keys()),
        )

    def _settings(self) -> Iterator[tuple[str, JobSetting]]:
        own = self._stated
        if "processes" in own:
            yield "gpus_per_node", own["processes"]
            nodes = own.get("torch_nodes") or own.get("slurm_nodes") or self._launched_nodes()
            if nodes is not None:
                yield "nodes", nodes
            return
        if "accelerate_ranks" in own:
            yield "gpus", own["accelerate_ranks"]
            nodes = own.get("torch_nodes") or own.get("slurm_nodes")
            if nodes is not None and own["accelerate_ranks"].value % nodes.value == 0:
                each = own["accelerate_ranks"].value // nodes.value
                yield "gpus_per_node", JobSetting(each, f"{own['accelerate_ranks'].origin} / {nodes.value}")
            return
        if "mpi_ranks" in own or self._words.keys() & {"mpi_mapping", "mpi_hosts"}:
            yield from self._mpi()
            return
        each = own.get("slurm_tasks_per_node")
        if each is None or each.value == 1:  # the only task on each node starts the ranks
            each = own.get("slurm_gpus_per_node")
        if each is not None:
            yield "gpus_per_node", each
        if (nodes := own.get("torch_nodes") or own.get("slurm_nodes")) is not None:
            yield "nodes", nodes
        tasks, per_node = own.get("slurm_tasks"), own.get("slurm_tasks_per_node")
        if tasks is not None and (per_node is None or per_node.value > 1):
            yield "gpus", tasks
        elif "slurm_gpus" in own:
            yield "gpus", own["slurm_gpus"]
        if "distribution" in self._words and (per_node is None or per_node.value > 1):
            text, where = self._words["distribution"]
            yield "distribution", JobSetting(text, where)

    def _launched_nodes(self) -> JobSetting | None:
        """Return the number of nodes: tasks / tasks per node; None if uneven or unknown."""
        tasks, each = self._stated.get("slurm_tasks"), self._stated.get("slurm_tasks_per_node")
        if tasks is None or each is None or tasks.value % each.value:
            return None
        return JobSetting(tasks.value // each.value, f"{tasks.origin} / {each.value}")

    def _mpi(self) -> Iterator[tuple[str, JobSetting]]:
        own = self._stated
        if "mpi_ranks" in own:
            yield "gpus", own["mpi_ranks"]
        mapping, where = self._words.get("mpi_mapping", ("", ""))
        ranking, ranked = self._words.get("mpi_ranking", ("", ""))
        kind = mapping.partition(":")[0].lower()
        if per_node := _PER_RESOURCE.fullmatch(mapping):
            yield "gpus_per_node", JobSetting(int(per_node[1]), where)
        elif "mpi_per_node" in own:
            yield "gpus_per_node", own["mpi_per_node"]
        elif slots := self._slots():
            yield "gpus_per_node", slots
        if kind == "node" or ranking.lower() == "node":
            yield "distribution", JobSetting("cyclic", where if kind == "node" else ranked)

    def _slots(self) -> JobSetting | None:
        """Return the number of slots per host in ``-H``; None if hosts differ."""
        text, where = self._words.get("mpi_hosts", ("", ""))
        slots = {host.partition(":")[2] for host in text.split(",")} if text else set()
        slot = slots.pop() if len(slots) == 1 else ""
        return JobSetting(int(slot), where) if slot.isascii() and slot.isdigit() and 0 < int(slot) < 1000 else None
