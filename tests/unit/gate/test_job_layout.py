"""The layout of a job in the gate: what fails, what is not judged, and that nothing else changes a verdict."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from preflight.checks import registry
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import ClusterFileError, decode
from preflight.gate import job_layout
from preflight.gate.job_layout import failures, with_layout
from preflight.gate.result import Judgement
from preflight.gate.slurm.scontrol import ControllerError
from preflight.gate.verdict import Verdict
from preflight.layout.job import LayoutError

TABLES = """
[class.train]
part = "HGX H100"
nodes = "t[1-16]"
[class.other]
part = "HGX A100"
nodes = "o[1-4]"
[gate]
layout = {layout}
"""
NODES = [f"t{number}" for number in range(1, 5)]
SCRIPT = """#!/bin/bash
#SBATCH --ntasks-per-node=8
srun python pretrain_gpt.py --tensor-model-parallel-size {tensor} --num-layers 24 --hidden-size 2048 \\
    --num-attention-heads 16 --seq-length 2048 --micro-batch-size 1 --global-batch-size 64 --vocab-size 50304
"""


def cluster(layout: str = '["layout.tensor-domain"]') -> Cluster:
    return decode(TABLES.format(layout=layout).encode(), "cluster.toml", registry().ids)


def test_groups_that_cross_an_nvlink_domain_fail() -> None:
    (failed,) = failures(SCRIPT.format(tensor=16), cluster(), NODES)
    assert (failed["check"], failed["found"]) == ("layout.tensor-domain", "2 groups")
    assert "ranks 0-15 are on t1, t2" in failed["message"]


def test_a_layout_that_fits_its_nodes_does_not_fail() -> None:
    assert not failures(SCRIPT.format(tensor=8), cluster(), NODES)
    assert not failures(SCRIPT.format(tensor=16), cluster('["layout.world-size"]'), NODES), "only the named checks"


def test_cyclic_tasks_are_judged_as_slurm_places_them() -> None:
    cyclic = SCRIPT.format(tensor=8).replace("#SBATCH", "#SBATCH --distribution=cyclic\n#SBATCH", 1)
    (failed,) = failures(cyclic, cluster(), NODES)
    assert "cyclic distribution" in failed["message"]


@pytest.mark.parametrize(
    ("script", "nodes", "why"),
    [
        ("#!/bin/sh\nhostname\n", NODES, "describes no training job"),
        ("", NODES, "describes no training job"),
        ("x" * 2_000_001, NODES, "longer than 2000000 bytes"),
        (SCRIPT.format(tensor="$TP"), NODES, "layout.tensor-domain: "),
        (SCRIPT.format(tensor=16).replace("--seq-length 2048", ""), NODES, "does not state sequence"),
        (SCRIPT.format(tensor=16).replace("#SBATCH", "#SBATCH --nodes=2\n#SBATCH", 1), NODES, "2 replaces 4"),
        (SCRIPT.format(tensor=16).replace("#SBATCH", "#SBATCH --ntasks=16\n#SBATCH", 1), NODES, "16 GPUs; its"),
        (SCRIPT.format(tensor=16), ["t1", "o1"], "not all of one class"),
        (SCRIPT.format(tensor=16), [], "not all of one class"),
    ],
)  # fmt: skip
def test_what_is_unknown_refuses_no_job(script: str, nodes: list[str], why: str) -> None:
    with pytest.raises(LayoutError, match=why):
        failures(script, cluster(), nodes)


HEAD, COMMAND = SCRIPT.format(tensor="$TP").split("srun", 1)


@pytest.mark.parametrize(
    "script",
    [
        f"{HEAD}TP=${{TP:-16}}\nsrun{COMMAND}",
        HEAD + f"srun{COMMAND}".replace("$TP", "${TP:=16}"),
        f'{HEAD}TP=16\nif [ -n "$SMALL" ]; then\n  TP=8\nfi\nsrun{COMMAND}',
        f"{HEAD}TP=16\nsource ./env.sh\nsrun{COMMAND}",
        f"{HEAD}TP=16\n. env.sh\nsrun{COMMAND}",
        f"{HEAD}TP=16\nif [ $1 = train ]; then\n  srun{COMMAND}else\n  python eval.py\nfi\n",
        f"{HEAD}TP=16\ncase $1 in\ntrain)\n  srun{COMMAND};;\nesac\n",
        f"{HEAD}TP=16\npython prepare.py\nexit 0\nsrun{COMMAND}",
        f'{HEAD}[ -n "$TP" ] || TP=16\nsrun{COMMAND}',
        f'{HEAD}if [ -z "$TP" ]; then TP=16; fi\nsrun{COMMAND}',
        f"{SCRIPT.format(tensor=8)}echo next: --tensor-model-parallel-size 16\n",
        f"{SCRIPT.format(tensor=8)}sbatch next.sh --tensor-model-parallel-size 16\n",
        f"{SCRIPT.format(tensor=16)}srun{COMMAND.replace('$TP', '8')}",
        f"{HEAD}TP=16\ntrain() {{\n  srun{COMMAND}}}\necho ready\n",
    ],
)
def test_a_layout_that_conditions_or_the_environment_select_is_unknown(script: str) -> None:
    with pytest.raises(LayoutError):
        failures(script, cluster(), NODES)


@pytest.mark.parametrize(
    "before",
    [
        "TP=16", "module load cuda\nsource venv/bin/activate\nTP=16",
        "if [ -d x ] && [ -w x ]; then rm -r x; fi\nTP=16",
        "if [ ! -d out ]; then\n  mkdir out\nfi\nTP=16", "OUT=${OUT:-/scratch}\n. /etc/profile.d/modules.sh\nTP=16",
        "for f in a b; do echo $f; done\nTP=16", "log() {\n  echo $1\n}\nTP=16", "set -e\nTP=16\nexport TP",
    ],
)  # fmt: skip
def test_other_conditions_do_not_matter(before: str) -> None:
    assert failures(f"{HEAD}{before}\nsrun{COMMAND}", cluster(), NODES)


def test_only_checks_of_a_layout_may_be_named() -> None:
    with pytest.raises(ClusterFileError, match=r"'gpu.count' is not a check of a job's layout"):
        cluster('["gpu.count"]')
    with pytest.raises(ClusterFileError, match=r"no check is called"):
        cluster('["layout.tensr-domain"]')


@pytest.fixture
def join(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that joins a script's layout with a verdict on the nodes."""
    monkeypatch.setenv("SLURM_JOB_NODELIST", "t[1-4]")
    request: Any = SimpleNamespace(node="t[1-4]", job="7", at=1, seconds=0.5)
    watch: Any = SimpleNamespace(enter=lambda what: None, left_s=5.0)

    def call(script: str | ControllerError, nodes: Verdict, layout: str = '["layout.tensor-domain"]') -> Judgement:
        def batch_script(number: str) -> str:
            if isinstance(script, ControllerError):
                raise script
            return script

        monkeypatch.setattr(job_layout, "Controller", lambda *_: SimpleNamespace(batch_script=batch_script))
        return with_layout(Judgement(nodes), request, cluster(layout), watch)

    return call


PASS = Verdict("t[1-4]", "pass", 1)


def test_the_job_owns_a_failed_layout(join: Any) -> None:
    nodes = Verdict("t[1-4]", "fail", 1, cause="gpu.count", causes=("gpu.count",), reason="preflight: t1: gpu.count")
    for before, causes in ((PASS, ()), (nodes, ("gpu.count",))):
        verdict = join(SCRIPT.format(tensor=16), before).verdict
        assert (verdict.status, verdict.owner, verdict.action) == ("fail", "job", "fix-job")
        assert verdict.causes == ("layout.tensor-domain", *causes)
        assert verdict.reason.startswith("preflight: layout.tensor-domain: 2 of the tensor-parallel groups")


def test_an_unknown_layout_leaves_the_verdict_and_is_reported(join: Any) -> None:
    interactive = ControllerError("scontrol write batch_script 7 -: job script retrieval failed: \x1b[31mInvalid")
    for script in (interactive, "hostname\n", SCRIPT.format(tensor="$TP")):
        judgement = join(script, PASS)
        assert judgement.verdict == PASS
        (line,) = judgement.lines
        assert line.startswith("  layout NOT JUDGED: ")
        assert "\x1b" not in line


def test_without_the_key_no_script_is_read(join: Any) -> None:
    assert join(ControllerError("not to be called"), PASS, "[]") == Judgement(PASS)
