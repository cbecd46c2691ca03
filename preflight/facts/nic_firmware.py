"""Firmware of RDMA NICs by board type (PSID), the scope of comparisons."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.evidence.document import EvidenceError
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import ROOT, is_virtual_function


def key_of(device: str) -> str:
    """Return the record key of a device's firmware."""
    return f"file:{ROOT}/{device}/fw_ver"


def boards(node: NodeFacts) -> Mapping[str, tuple[str, ...]]:
    """Return board type -> its NICs; virtual functions are left out."""
    try:
        devices = node.rdma_devices
    except EvidenceError:
        return {}
    of_board: dict[str, list[str]] = {}
    for device in devices:
        try:
            board = node.evidence.text(f"file:{ROOT}/{device}/board_id").strip()
        except EvidenceError:
            continue
        if board and not is_virtual_function(node.evidence, device):
            of_board.setdefault(board, []).append(device)
    return {board: tuple(mine) for board, mine in of_board.items()}


def of_board(node: NodeFacts, board: str) -> dict[str, str]:
    """Return NIC -> firmware of one board type; raises EvidenceError."""
    return {device: node.evidence.text(key_of(device)).strip() for device in boards(node).get(board, ())}
