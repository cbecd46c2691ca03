"""Relations between checks: declared next to them, consistent, and listed by explain."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from preflight.checks import registry
from preflight.incidents.parts import Parts
from preflight.incidents.relations import Relations, acyclic
from preflight.model import IMPACTS, OWNERS, RELATIONS, Check, check
from preflight.parsers.nccl_log.signatures import all_signatures
from tests.support.in_process import run

CHECKS = registry().checks


@pytest.mark.parametrize("declared", [check for check in CHECKS if check.explains], ids=lambda check: check.id)
def test_relations_name_checks_that_exist(declared: Check) -> None:
    for relation in declared.relations:
        assert any(fnmatchcase(other.id, relation.effect) for other in CHECKS), relation
        assert relation.on in RELATIONS


def test_a_check_that_a_signature_names_explains_its_failure() -> None:
    declared = {check.id: {(relation.effect, relation.on) for relation in check.relations} for check in CHECKS}
    for signature in all_signatures():
        assert not signature.check or ("nccl.failures", "log") in declared[signature.check], signature.name


def test_no_chain_of_relations_leads_back() -> None:
    assert acyclic(CHECKS)


@pytest.mark.parametrize("declared", CHECKS, ids=lambda check: check.id)
def test_every_check_declares_its_impact(declared: Check) -> None:
    assert declared.impact in IMPACTS
    assert declared.owner in ("", *OWNERS)


@pytest.mark.parametrize(
    "words",
    [{"impact": "hurts"}, {"owner": "nature"}, {"explains": [("a.b",)]}, {"explains": [("a.b", "somehow")]}],
    ids=lambda words: next(iter(words)),
)
def test_wrong_declaration_is_an_error_at_import(words: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"check made\.up"):
        check("made.up", title="t", source="s", fix="f", **words)(_made_up)  # type: ignore[arg-type]


def _made_up(facts: object, site: object) -> None:
    """Compare nothing.

    ## Why it matters
    It does not.
    """


def test_explain_lists_what_a_check_explains_and_what_explains_it() -> None:
    shown = " ".join(run("explain", "nvlink.links").split())
    assert "Impact: slows-job; owner: node" in shown
    assert "Explains: topology.nvlink (of the same part)" in shown
    shown = " ".join(run("explain", "topology.nvlink").split())  # wrapped
    assert "Explained by:" in shown
    assert "nvlink.links (of the same part)" in shown


BALANCE = ("counters.balance", "mlx5_5:1", "mlx5_5:1 carried 75 Gb/s, less than half of the median port")
MTU = ("fleet.mtu-equal", "MTU", "MTU differs")


XID = ("xid.gpu", "0000:d1:00.0")
LINKS = ("nvlink.links", "0000:d1:00.0", "GPU6: 0 of 18 NVLinks are up")
AER = "1 uncorrected, non-fatal PCIe error of 0000:5e:00.0"
NFS = ("kernel.events", "192.0.2.20", "NFS server 192.0.2.20 does not answer, 4 min ago")
PARTS = Parts({"0000:5e:00.0": "mlx5_5", "enp94s0": "mlx5_5", "GPU6": "0000:d1:00.0"}, frozenset(), {})


@pytest.mark.parametrize(
    ("cause", "effect", "explained"),
    [
        # the traffic of a slow port
        (("rdma.port-rate", "mlx5_5:1", "runs at 100 Gb/s"), BALANCE, True),
        (("pcie.nic-link", "mlx5_5", "carries 126 Gb/s"), BALANCE, True),
        (("rdma.port-rate", "mlx5_6:1", "runs at 100 Gb/s"), BALANCE, False),
        (("rdma.port-rate", "mlx5_5:1", "runs at 100 Gb/s"), (*BALANCE[:2], "more than twice the median port"), False),
        # one variable
        (("nccl.unknown-variables", "NCCL_X", "no program reads it"), ("fleet.ranks-agree", "NCCL_X", "on one"), True),
        (("nccl.unknown-variables", "NCCL_X", "no program reads it"), ("fleet.ranks-agree", "NCCL_Y", "on one"), False),
        (("fleet.ranks-agree", "NCCL_ALGO", "Tree on one"), ("nccl.pinned-choices", "NCCL_ALGO", "pins"), True),
        (("fleet.ranks-agree", "NCCL_ALGO", "Tree on one"), ("nccl.pinned-choices", "NCCL_PROTO", "pins"), False),
        # one link layer has another MTU than the other
        (("fleet.nic-settings", "link layer of the compute ports", "Ethernet on 4"), MTU, True),
        (("fleet.nic-settings", "ACS", "on"), MTU, False),
        # the NVLinks of a GPU with an NVLink error, or off the bus; not after another error, or of another GPU
        ((*XID, "Xid 74: NVLink error, repeated"), LINKS, True),
        ((*XID, "Xid 150: NVLink unit error"), ("topology.nvlink", "GPU6", "no NVLink"), True),
        ((*XID, "Xid 79: GPU has fallen off the bus"), LINKS, True),
        ((*XID, "Xid 48: uncorrectable (double-bit) memory error"), LINKS, False),
        ((*XID, "Xid 74: NVLink error, repeated"), ("nvlink.links", "0000:43:00.0", "GPU1: 0 of 18 are up"), False),
        # PCIe errors of the device whose link is narrow
        (("pcie.nic-link", "mlx5_5", "carries 126 Gb/s"), ("kernel.events", "0000:5e:00.0", AER), True),
        (("pcie.nic-link", "mlx5_6", "carries 126 Gb/s"), ("kernel.events", "0000:5e:00.0", AER), False),
        (("pcie.nic-link", "mlx5_5", "carries 126 Gb/s"), ("kernel.events", "enp94s0", "the link of enp94s0"), False),
        (("gpu.pcie-link", "0000:43:00.0", "8 of 16 lanes"), ("kernel.events", "0000:43:00.0", AER), True),
        (("gpu.pcie-link", "0000:43:00.0", "8 of 16 lanes"), ("kernel.events", "0000:d1:00.0", AER), False),
        # the mounts of a server that is silent
        (NFS, ("host.mounts", "/data", "/data (192.0.2.20:/data) does not answer: Stale file handle"), True),
        (NFS, ("host.mounts", "/data", "/data (192.0.2.200:/data) does not answer: Stale file handle"), False),
        (NFS, ("host.mounts", "/data", "/data is of type nfs, not nfs4"), False),
    ],
)
def test_a_cause_explains_its_effect(cause: tuple[str, ...], effect: tuple[str, ...], explained: bool) -> None:
    first, second = (
        dict(zip(("check", "subject", "message"), words, strict=True))
        | {"nodes": ["n1"], "evidence": [], "status": "fail"}
        for words in (cause, effect)
    )
    assert Relations(CHECKS).explains(first, second, PARTS) is explained
