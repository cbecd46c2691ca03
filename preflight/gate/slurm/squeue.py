"""Parser of squeue: fields of a job that only Slurm writes.

``scontrol show job`` prints the names and comments of jobs unquoted among its fields: a user who calls a job
``x HetJobId=9`` would have root put back another's job, and root would be shown all tasks of an array at once.
"""

from __future__ import annotations

from preflight._startup.lightclass import dataclass

#: Fields of ``squeue --Format`` in 20.02 and newer, and their width: a number has ten digits, a state sixteen letters.
_FIELDS = ("JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "State", "BatchFlag", "Requeue")
_WIDTH = 24

FORMAT = ",".join(f"{name}:{_WIDTH}" for name in _FIELDS)


@dataclass(frozen=True)
class SlurmJob:
    """A job as the controller knows it: its number, its array and task, the heterogeneous job that it is a part of."""

    number: str
    array: str
    task: str
    heterogeneous: str
    state: str
    batch: str
    requeue: str

    @property
    def name(self) -> str:
        """What to call this job, and no other: one task of an array has the number of the whole array."""
        return f"{self.array}_{self.task}" if self.task.isdigit() else self.number

    @property
    def target_id(self) -> str:
        """Identifier to requeue or cancel: a heterogeneous job only as a unit."""
        return self.heterogeneous if self.heterogeneous.isdigit() else self.name

    @property
    def returns(self) -> bool:
        """Whether it can be put back into the queue."""
        return self.batch == "1" and self.requeue != "0"


def read(text: str, number: str) -> SlurmJob | None:
    """Find a job in the answer of squeue, which has a line for each task of an array; None if it is not there.

    Raises ValueError where it is no such answer.
    """
    for line in text.splitlines():
        cells = [line[start : start + _WIDTH].strip() for start in range(0, _WIDTH * len(_FIELDS), _WIDTH)]
        if not cells[0].isdigit() or not cells[4].isupper():
            raise ValueError(f"has a line that is none of a job: {line[:80]!r}")
        if cells[0] == number:
            return SlurmJob(*cells)
    return None
