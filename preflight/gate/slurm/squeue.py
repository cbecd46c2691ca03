"""Parser of squeue's output: job fields that only Slurm writes.

``scontrol show job`` prints user-chosen names and comments unquoted among its fields: a job named ``x HetJobId=9``
would have root requeue another user's job. For root it also shows all tasks of an array at once.
"""

from __future__ import annotations

from preflight._startup.lightclass import dataclass

#: Fields of ``squeue --Format`` in 20.02 and newer, and their width: a number has ten digits, a state sixteen letters.
_FIELDS = ("JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "State", "BatchFlag", "Requeue")
_WIDTH = 24

FORMAT = ",".join(f"{name}:{_WIDTH}" for name in _FIELDS)


@dataclass(frozen=True)
class SlurmJob:
    """A job as reported by the controller, with the strings of its fields."""

    number: str
    array: str
    task: str
    heterogeneous: str
    state: str
    batch: str
    requeue: str

    @property
    def name(self) -> str:
        """The id of this job.

        For a task of an array, it is ARRAY_TASK.
        """
        return f"{self.array}_{self.task}" if self.task.isdigit() else self.number

    @property
    def target_id(self) -> str:
        """The id to requeue or cancel; for a heterogeneous job, that of the complete job."""
        return self.heterogeneous if self.heterogeneous.isdigit() else self.name

    @property
    def returns(self) -> bool:
        """Whether the job can be requeued."""
        return self.batch == "1" and self.requeue != "0"


def read(text: str, number: str) -> SlurmJob | None:
    """Find a job in the output of squeue; return None if it is missing.

    Each task of an array has its own line. Raises ValueError for any other text.
    """
    for line in text.splitlines():
        cells = [line[start : start + _WIDTH].strip() for start in range(0, _WIDTH * len(_FIELDS), _WIDTH)]
        if not cells[0].isdigit() or not cells[4].isupper():
            raise ValueError(f"contains a line that is not a job: {line[:80]!r}")
        if cells[0] == number:
            return SlurmJob(*cells)
    return None
