"""``nvidia-smi topo -m``: how near GPUs are to each other and to the NICs.

Columns are found by the names in the header, never by position; rows are split on white space.
Orders are shuffled on real machines, so pairs are read from the matrix, never by index.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from preflight._startup.lightclass import dataclass
from preflight.textprep.plain_text import normalize_text

#: Path codes, near to far (the tool's own legend); SOC is the name before 2016 for SYS.
RANK = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5, "SOC": 5}
_CODE = re.compile(r"X|NV[0-9]{1,3}|PIX|PXB|PHB|NODE|SYS|SOC")
_GPU = re.compile(r"GPU[0-9]{1,3}")
_TRAILING = re.compile(r"\s(?:CPU Affinity|NUMA Affinity|GPU NUMA ID)")
_LEGEND = re.compile(r"\s*(NIC[0-9]{1,3})\s*:\s*(\S+)\s*")


@dataclass(frozen=True)
class Topology:
    """The matrix. NICs are called by their RDMA device name where the tool gave a NIC legend."""

    gpus: tuple[str, ...]  # GPU0, GPU1, …
    nics: tuple[str, ...]  # RDMA device names: mlx5_0, …
    links: Mapping[str, Mapping[str, str]]  # name -> name -> code
    cpu_affinity: Mapping[str, str]  # GPU -> CPU list as printed, without those that say N/A
    cut_rows: tuple[str, ...] = ()  # rows that could not be read whole, by name

    def nvlinks(self, one: str, other: str) -> int:
        """Return the number of bonded NVLinks between two GPUs; 0 for a path over PCIe."""
        code = self.links[one][other]
        return int(code[2:]) if code.startswith("NV") else 0

    @property
    def bridged(self) -> bool:
        """Whether NVLink joins cards two by two, as bridges do, and no GPU to more than one other."""
        rows = [self.links[gpu] for gpu in self.gpus if gpu in self.links]
        partners = [sum(row.get(other, "").startswith("NV") for other in self.gpus) for row in rows]
        return len(self.gpus) > 2 and max(partners, default=0) == 1

    def nearest_nics(self, gpu: str, among: Collection[str] | None = None) -> tuple[str, tuple[str, ...]]:
        """Return the best code of a GPU to any of these NICs, and those that have it (``("", ())`` without NICs)."""
        row = self.links[gpu]
        codes = {nic: row[nic] for nic in (self.nics if among is None else among)}
        if not codes:
            return "", ()
        best = min(codes.values(), key=lambda code: RANK.get(code, 99))
        return best, tuple(nic for nic, code in codes.items() if code == best)

    def lenders(self, among: Collection[str] | None = None, by_design: bool = False) -> dict[str, tuple[str, ...]]:
        """Return the GPUs that share another GPU's NIC by the board's design -> GPUs that lend theirs over NVLink.

        So are boards with one NIC for every two GPUs: each near NIC belongs to one GPU, every other GPU has NVLink to
        as many lenders on its own socket, and there are as many borrowers to each lender. Where the numbers do not
        come out even, a NIC is missing or in the wrong slot, and nobody borrows; unless the site says (``by_design``)
        that the node has fewer NICs than GPUs: then a missing one is another check's matter, and one that is near no
        GPU is blamed on its own socket only.
        """
        nearest = {gpu: self.nearest_nics(gpu, among) for gpu in self.gpus if gpu in self.links}
        owners = {gpu: nics for gpu, (code, nics) in nearest.items() if code in ("PIX", "PXB")}
        others = [gpu for gpu in nearest if gpu not in owners]
        used = [nic for nics in owners.values() for nic in nics]
        if not owners or len(set(used)) < len(used) or (len(others) % len(owners) and not by_design):
            return {}
        found = {
            gpu: tuple(
                owner for owner, nics in owners.items() if self.nvlinks(gpu, owner) and self._one_socket(gpu, nics[0])
            )
            for gpu in others
        }
        if by_design:
            stray = set(among or ()) - set(used)
            return {
                gpu: owning
                for gpu, owning in found.items()
                if owning and not any(self._one_socket(gpu, nic) for nic in stray)
            }
        even = len({len(owning) for owning in found.values()}) == 1
        return found if even and all(found.values()) else {}

    def _one_socket(self, gpu: str, nic: str) -> bool:
        return RANK.get(self.links[gpu][nic], 99) < RANK["SYS"]


def parse(text: str) -> Topology:
    """Read the matrix; raises ValueError with the line that cannot be read."""
    lines = normalize_text(text).split("\n")
    start, names = _header(lines)
    rows: dict[str, dict[str, str]] = {}
    affinity: dict[str, str] = {}
    cut: list[str] = []
    legend: dict[str, str] = {}
    place = {name: position for position, name in enumerate(names)}
    if len(place) < len(names):
        raise ValueError("the header names a column twice")
    for line in lines[start + 1 :]:
        if match := _LEGEND.fullmatch(line):
            legend[match[1]] = match[2]
            continue
        tokens = line.split()
        if not tokens or tokens[0] not in place or tokens[0] in rows:
            continue
        name, cells = tokens[0], tokens[1 : 1 + len(names)]
        if len(cells) < len(names) or not all(_CODE.fullmatch(cell) for cell in cells):
            cut.append(name)
            continue
        if cells[place[name]] != "X":
            raise ValueError(f"the row of {name} has {cells[place[name]]!r} where it meets itself, not X")
        rows[name] = dict(zip(names, cells, strict=True))
        rest = tokens[1 + len(names) :]
        if rest and re.fullmatch(r"[0-9,-]+", rest[0]):
            affinity[name] = rest[0]
    cut = list(dict.fromkeys([*cut, *(name for name in names if name not in rows)]))
    _must_be_symmetric(rows)
    device = {name: legend.get(name, name) for name in names}
    gpus = tuple(name for name in names if _GPU.fullmatch(name))
    if not gpus:
        raise ValueError("the header names no GPU")
    return Topology(
        gpus=gpus,
        nics=tuple(device[name] for name in names if not _GPU.fullmatch(name)),
        links={device[a]: {device[b]: code for b, code in row.items()} for a, row in rows.items()},
        cpu_affinity=affinity,
        cut_rows=tuple(device[name] for name in cut),
    )


def _header(lines: list[str]) -> tuple[int, list[str]]:
    for number, line in enumerate(lines):
        names = _TRAILING.split(line.replace("\t", "  "))[0].split()
        if names and names[0] == "GPU0" and all(re.fullmatch(r"[A-Za-z][\w.-]*", n) for n in names):
            return number, names
    first = next((line.strip() for line in lines if line.strip()), "")
    raise ValueError(f"there is no matrix header; the output begins {first[:80]!r}")


def _must_be_symmetric(rows: Mapping[str, Mapping[str, str]]) -> None:
    for one, row in rows.items():
        for other, code in row.items():
            if other in rows and rows[other].get(one) != code:
                raise ValueError(
                    f"{one} to {other} is {code} but {other} to {one} is {rows[other].get(one)}: "
                    "the matrix is not symmetric, so the text is damaged"
                )
