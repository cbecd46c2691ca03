"""The matrix of ``nvidia-smi topo -m``: paths between GPUs and NICs.

The order of devices varies between machines, so pairs are read from the matrix, not derived from indices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from preflight._startup.lightclass import dataclass

#: Path codes in the tool's legend, from near to far. SOC is the name of SYS before 2016.
RANK = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5, "SOC": 5}
#: Codes of a path that crosses only PCIe switches.
NEAR_CODES = ("PIX", "PXB")


@dataclass(frozen=True)
class Topology:
    """The complete rows of the matrix; NICs have RDMA device names if known."""

    gpus: tuple[str, ...]  # GPU0, GPU1, …
    nics: tuple[str, ...]  # mlx5_0, mlx5_1, …; NIC0, … without a legend
    links: Mapping[str, Mapping[str, str]]  # name -> name -> code
    cpu_affinity: Mapping[str, str]  # GPU -> CPU list as printed; a GPU with N/A is missing
    cut_rows: tuple[str, ...] = ()  # names of missing or truncated rows

    def nvlinks(self, one: str, other: str) -> int:
        """Return the number of NVLinks between two GPUs; 0 for a path over PCIe."""
        code = self.links[one][other]
        return int(code[2:]) if code.startswith("NV") else 0

    @property
    def bridged(self) -> bool:
        """Whether NVLink bridges connect the GPUs in pairs.

        True if there are more than two GPUs, and no GPU has NVLink to more than one other.
        """
        rows = [self.links[gpu] for gpu in self.gpus if gpu in self.links]
        partners = [sum(row.get(other, "").startswith("NV") for other in self.gpus) for row in rows]
        return len(self.gpus) > 2 and max(partners, default=0) == 1

    def nearest_nics(self, gpu: str, among: Collection[str] | None = None) -> tuple[str, tuple[str, ...]]:
        """Return the code of a GPU's shortest path to a NIC, and the NICs that have it.

        ``among`` limits the NICs; without any NIC, the result is ``("", ())``.
        """
        row = self.links[gpu]
        codes = {nic: row[nic] for nic in (self.nics if among is None else among)}
        if not codes:
            return "", ()
        best = min(codes.values(), key=lambda code: RANK.get(code, 99))
        return best, tuple(nic for nic, code in codes.items() if code == best)

    def sharers(self, among: Collection[str] | None = None) -> dict[str, tuple[str, ...]]:
        """Map each GPU that uses the NIC of another one over its CPU to that NIC.

        PCIe servers with fewer NICs than GPUs are built this way. Each NIC is near some GPU and serves the same number
        of others on its socket; otherwise, or with NVLink, a NIC is missing or in the wrong slot, and the result is
        empty.
        """
        nearest = {gpu: self.nearest_nics(gpu, among) for gpu in self.gpus if gpu in self.links}
        near = {nic for code, nics in nearest.values() if code in NEAR_CODES for nic in nics}
        far = {gpu: nics for gpu, (code, nics) in nearest.items() if code in ("PHB", "NODE")}
        users = Counter(nic for nics in far.values() for nic in nics)
        linked = any(code.startswith("NV") for gpu in nearest for code in self.links[gpu].values())
        fewer = near == set(self.nics if among is None else among) and len(near) < len(nearest)
        even = set(users) == near and len(set(users.values())) == 1 and all(len(nics) == 1 for nics in far.values())
        alone = all(code in ("PHB", "NODE", *NEAR_CODES) for code, _ in nearest.values())
        return far if fewer and even and alone and not linked else {}

    def lenders(self, among: Collection[str] | None = None, by_design: bool = False) -> dict[str, tuple[str, ...]]:
        """Map each GPU without a near NIC to the GPUs that lend it theirs over NVLink.

        Boards with one NIC for every two GPUs are designed this way. Each near NIC belongs to one GPU, and each
        remaining GPU has NVLink to the same number of such owners on its socket. If the numbers do not match, a NIC is
        missing or in the wrong slot, and the result is empty. With ``by_design``, the site declares that the node has
        fewer NICs than GPUs. A missing NIC is then left to another check, and a NIC that is near no GPU excludes only
        the GPUs on its own socket.
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


@dataclass(frozen=True)
class Matrix:
    """The matrix as printed, complete or truncated."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]  # NIC0, NIC1, … or, for older drivers, device names
    devices: Mapping[str, str]  # NIC -> RDMA device name, from the legend
    links: Mapping[str, Mapping[str, str]]  # name -> name -> code; a truncated row has only its first codes
    affinity: Mapping[str, Mapping[str, str | None]]  # GPU -> cpu, numa, gpu_numa_id
    complete_rows: tuple[str, ...]
    cut_rows: tuple[str, ...]  # missing or truncated
    missing_rows: tuple[str, ...]  # names that only the header has
    damage: tuple[str, ...]  # contradictions within the text
    nvlinks_agree: bool = False  # no damage, except contradicting cells that are not NVLinks

    def nearest_nics(self) -> dict[str, list[str]]:
        """Return the nearest NICs of each GPU whose row is complete."""
        nearest = {}
        for gpu in self.gpus:
            if gpu in self.complete_rows and self.nics:
                row = self.links[gpu]
                best = min(RANK.get(row[nic], 99) for nic in self.nics)
                nearest[gpu] = [nic for nic in self.nics if RANK.get(row[nic], 99) == best]
        return nearest

    def topology(self) -> Topology:
        """Return the complete rows, with NICs named by their RDMA devices if known."""
        rows = {name: self.links[name] for name in self.complete_rows}
        device = {name: self.devices.get(name, name) for name in (*self.gpus, *self.nics)}
        return Topology(
            gpus=self.gpus,
            nics=tuple(device[name] for name in self.nics),
            links={
                device[name]: {device[name]: "X", **{device[other]: code for other, code in row.items()}}
                for name, row in rows.items()
            },
            cpu_affinity={gpu: cpus for gpu, columns in self.affinity.items() if (cpus := columns["cpu"])},
            cut_rows=tuple(device[name] for name in self.cut_rows),
        )
