"""Check that a node's RDMA NICs of one board have the same firmware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from preflight.checks.applicability import RDMA_CLASS, no_rdma
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts import nic_firmware
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import natural
from preflight.model import Finding, check, passed, skipped, unknown, warned


def no_board_named(node: NodeFacts, site: Site) -> Finding | None:
    """Skip NICs without a known board."""
    if nic_firmware.boards(node):
        return None
    return skipped("no NIC reports its board, which is needed to compare firmware", evidence=[RDMA_CLASS])


@check(
    "rdma.firmware",
    title="All NICs of one board run the same firmware",
    fault="NICs of one board run different firmware versions",
    impact="drifts",
    source="NVIDIA firmware release notes (one bundle for all adapters of a server); GCM's FIRMWARE_MISMATCH",
    fix="`mlxfwmanager` shows both versions; update the NIC that differs to the version of its peers, then run "
    "`mlxfwreset -d DEVICE reset` or power-cycle. Declare the right version with `firmware.nics` in the cluster file.",
    action="fix-site",
    gating=False,
    unless=(no_rdma, no_board_named),
)
def firmware(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the firmware of the NICs of each board (PSID) with each other.

    ## Why it matters
    Firmware controls how a NIC reacts to congestion, and has its own bugs. A NIC with different firmware, such as a
    replaced card, may behave unlike its neighbours, which shows as one slow rail.

    ## Verdicts
    Differences warn, with the device, both versions and the board. NICs of different boards are not compared; virtual
    functions have their host's firmware. If all compute NICs run one version and the other NICs another, neither is
    reported as the wrong one. Without a majority, it is unknown which version is right: declare
    `firmware.nics` in the cluster file, and node.expected compares the versions. If that key lists several versions for
    a board, a mixture of them passes.

    ## False alarms
    A firmware roll-out with some cards not yet reset, or NICs of one board that differ on purpose: declare both
    versions, `firmware.nics = { MT_0000000838 = ["28.43.2026", "28.45.1200"] }`.
    """
    boards = nic_firmware.boards(node)
    same = []
    for board in sorted(boards):
        try:
            versions = nic_firmware.of_board(node, board)
        except EvidenceError as error:
            yield unknown(
                f"firmware of the NICs of board {board} could not be read: {error}", subject=board, evidence=[error.key]
            )
            continue
        counts = Counter(versions.values())
        right = site.alternatives(f"firmware.nics.{board}")
        if len(counts) > 1 and counts.keys() <= set(right):
            same.append(f"{len(versions)} x {board} with {' or '.join(right)} (declared)")
            continue
        if len(counts) == 1:
            same.append(f"{len(versions)} x {board} with {versions.popitem()[1]}")
            continue
        keys = {device: nic_firmware.key_of(device) for device in versions}
        compute = {port.device for port in site.roles(node).compute}
        of_roles = _of_roles(board, versions, compute, keys)
        yield from [of_roles] if of_roles else judge_board(board, versions, keys)
    if same:
        yield passed(f"NICs of the same board run the same or the declared firmware: "
                     f"{', '.join(same)}", found=", ".join(same),
                     evidence=[RDMA_CLASS])  # fmt: skip


def _of_roles(
    board: str, versions: Mapping[str, str], compute: Collection[str], keys: Mapping[str, str]
) -> Finding | None:
    """Report that compute NICs run one version, and NICs of other roles another.

    They were updated separately: the version of the smaller number need not be the wrong one.
    """
    own, rest = ({device: mine for device, mine in versions.items() if (device in compute) is side}
                 for side in (True, False))  # fmt: skip
    if min(len(own), len(rest)) < 2 or len(set(own.values())) != 1 or len(set(rest.values())) != 1:
        return None
    (mine, *_), (theirs, *_) = own.values(), rest.values()
    listed = f"{mine} on the {len(own)} compute NICs, {theirs} on {_devices(versions, theirs)}"
    return warned(
        f"NICs of board {board} run 2 versions of firmware: {listed}",
        subject=board, found=listed, expected="one version", evidence=list(dict.fromkeys(keys.values())),
        fix="`mlxfwmanager` shows both versions; install the newer one on all, or the one of the other nodes, then run "
        "`mlxfwreset -d DEVICE reset` or power-cycle. Declare both if they are intended (`firmware.nics`).",
    )  # fmt: skip


def judge_board(board: str, versions: Mapping[str, str], keys: Mapping[str, str]) -> Iterator[Finding]:
    """Report a board's NICs whose firmware differs from most; all without a majority."""
    counts = Counter(versions.values())
    (usual, most), (_, second) = counts.most_common(2)
    if most == second:
        listed = "; ".join(f"{version} on {_devices(versions, version)}" for version in sorted(counts))
        yield warned(
            f"NICs of board {board} run {len(counts)} versions of firmware, without a majority: {listed}",
            subject=board, found=listed, expected="one version", evidence=list(dict.fromkeys(keys.values())),
        )  # fmt: skip
        return
    for version in sorted(counts):
        if version != usual:
            odd = _devices(versions, version)
            yield warned(
                f"{odd} {'run' if ',' in odd else 'runs'} firmware {version}, but {most} of {len(versions)} NICs "
                "of the "
                f"same board ({board}) run {usual}",
                subject=odd if "," not in odd else board, found=f"{odd} {version}",
                expected=f"{usual}, like the other NICs of the board",
                evidence=list(dict.fromkeys(keys[device] for device, mine in versions.items() if mine == version)),
            )  # fmt: skip


def _devices(versions: Mapping[str, str], version: str) -> str:
    return ", ".join(sorted((device for device, mine in versions.items() if mine == version), key=natural))
