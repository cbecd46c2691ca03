"""The matrix of ``nvidia-smi topo -m``: distances of GPUs and NICs.

The order of devices varies on real machines, so pairs are read from the matrix, not by index.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from preflight._startup.lightclass import dataclass

#: Path codes, near to far (the tool's legend); SOC is the name of SYS before 2016.
RANK = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5, "SOC": 5}
#: Codes of a NIC behind the GPU's own PCIe switch.
NEAR_CODES = ("PIX", "PXB")


@dataclass(frozen=True)
class Topology:
    """The matrix. NICs have their RDMA device name if there is a NIC legend."""

    gpus: tuple[str, ...]  # GPU0, GPU1, …
    nics: tuple[str, ...]  # RDMA device names: mlx5_0, …
    links: Mapping[str, Mapping[str, str]]  # name -> name -> code
    cpu_affinity: Mapping[str, str]  # GPU -> CPU list as printed, without N/A
    cut_rows: tuple[str, ...] = ()  # incomplete rows, by name

    def nvlinks(self, one: str, other: str) -> int:
        """Return the number of bonded NVLinks between two GPUs; 0 for a path over PCIe."""
        code = self.links[one][other]
        return int(code[2:]) if code.startswith("NV") else 0

    @property
    def bridged(self) -> bool:
        """Whether NVLink joins cards in pairs, as bridges do.

        No GPU is connected to more than one other GPU.
        """
        rows = [self.links[gpu] for gpu in self.gpus if gpu in self.links]
        partners = [sum(row.get(other, "").startswith("NV") for other in self.gpus) for row in rows]
        return len(self.gpus) > 2 and max(partners, default=0) == 1

    def nearest_nics(self, gpu: str, among: Collection[str] | None = None) -> tuple[str, tuple[str, ...]]:
        """Return a GPU's best code to any of these NICs, and the NICs that have it.

        ``("", ())`` without NICs.
        """
        row = self.links[gpu]
        codes = {nic: row[nic] for nic in (self.nics if among is None else among)}
        if not codes:
            return "", ()
        best = min(codes.values(), key=lambda code: RANK.get(code, 99))
        return best, tuple(nic for nic, code in codes.items() if code == best)

    def lenders(self, among: Collection[str] | None = None, by_design: bool = False) -> dict[str, tuple[str, ...]]:
        """Return borrowing GPU -> GPUs that lend their NIC over NVLink, by design.

        This is the design of boards with one NIC for every two GPUs: each near NIC belongs to one GPU, every other GPU
        has NVLink to as many lenders on its own socket, and each lender has as many borrowers. If the numbers do not
        match, a NIC is missing or in the wrong slot; unless the site declares (``by_design``) that the node has fewer
        NICs than GPUs: then another check covers a missing one, and a NIC that is near no GPU affects only its own
        socket.
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
    devices: Mapping[str, str]  # NIC -> RDMA device name, by the legend
    links: Mapping[str, Mapping[str, str]]  # name -> name -> code; for a truncated row, the remaining ones
    affinity: Mapping[str, Mapping[str, str | None]]  # GPU -> cpu, numa, gpu_numa_id
    complete_rows: tuple[str, ...]
    cut_rows: tuple[str, ...]
    damage: tuple[str, ...]  # contradictions within the text
    nvlinks_agree: bool = False  # contradicting cells, none of which is an NVLink

    def nearest_nics(self) -> dict[str, list[str]]:
        """Return the nearest NICs of each GPU with a complete row."""
        nearest = {}
        for gpu in self.gpus:
            if gpu in self.complete_rows and self.nics:
                row = self.links[gpu]
                best = min(RANK.get(row[nic], 99) for nic in self.nics)
                nearest[gpu] = [nic for nic in self.nics if RANK.get(row[nic], 99) == best]
        return nearest

    def topology(self) -> Topology:
        """Return the complete rows, NICs by their device names."""
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
