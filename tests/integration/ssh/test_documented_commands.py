"""Every command on a page is run on the demo's evidence and on real SSH hosts, or listed with its test."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tarfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from preflight.cli.app import main
from tests.support import commands, training_job
from tests.support.clos import Clos
from tests.support.fabric.ibsim import fat_tree
from tests.support.fixture import cases
from tests.support.paths import ROOT
from tests.support.sshfarm import SSHD, Farm
from tests.unit.recognition import test_nccl_ras

PAGES = (
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "deploy").rglob("*.md"),
    ROOT / "benchmarks/README.md",
)
PREFLIGHT = re.compile(
    r"(?:[\w -]+ \| )?(?:sudo |salloc -N\d+ )?(?:\S*python3? -I (?:-m preflight|\S+\.pyz)|(?:\.venv/bin/)?preflight) "
)

#: Placeholder of a reader's value -> its replacement here.
HERE = (
    (r"'?gpu\[001-0\d\d\]'?|\bgpu00[1-3]\b(?= |$)", "127.77.0.1"),
    (r"(pair) 127\.77\.0\.1 127\.77\.0\.1", r"\1 127.77.0.1 127.77.0.2"),
    (r"(?:/etc/(?:slurm/)?preflight|/shared)/cluster\.toml", "cluster.toml"),
    (r"/etc/nhc/nhc\.conf", "nhc.conf"),
    (r"/shared/evidence/\$\(hostname\)", "node"),
    (r"/shared/evidence|\bDIR\b|\bruns/today\b", "evidence"),
    (r"/var/lib/preflight-history/", ""),
    (r"evidence/\*", "evidence"),
    (r"--window 60", "--window 1"),
    (r"\bHOOK\b", "ci"),
    (r"(?<=--nodes )127\.77\.0\.1|(?<=history\.db )127\.77\.0\.1", "gpu003"),
)

#: Commands of preflight that are only parsed here -> where they run.
PARSED = {
    r"--via kubectl": "tests/integration/kubernetes, with pods",
    r"gate slurm-": "tests/integration/slurm, with slurmd",
    r"gate status|slurm (un)?install": "tests/integration/slurm/test_install.py, with slurmctld",
    r"check --fabric": "tests/integration/fabric, with ibsim",
    r"check .*--switches": "tests/integration/ssh/test_switches.py, with Redis",
    r"preflight bench |judge acceptance/": "pytest -m mpi, with Open MPI and sshd in network namespaces",
}

#: Other commands -> what runs them.
OTHERS = {
    r"python3 -m (venv|pip) ": ".ci/run, tests/integration/install and its fresh_debian.sh",
    r"\.venv/bin/(pytest|ruff) ": ".ci/run",
    r"\.venv/bin/python -m mkdocs ": ".ci/run",
    r"tests/\S+\.sh$": "people, with debootstrap",
    r"TORCH=": "people, with a Python that has torch 2.13.0 (CPU build) and tabulate",
    r"sh rounds\.sh |sbatch rounds\.sbatch ": "tests/integration/mpi, over ssh and in Slurm",
    r"mpirun ": "tests/integration/mpi, with a stand-in for nccl-tests",
    r"HTA=": "people, with a Python that has HolisticTraceAnalysis",
    r"AXE=": "people, with axe-core from npm",
    r"mpirun -np 2 -H gpu001,gpu002 ": "people, on a cluster",
    r"ncclras |py-spy ": "people, where a job of NCCL runs",
    r"sudo apt-get install ": ".ci/run installs the same packages; tests/architecture compares the lists",
    r"cyclonedx-py ": "tests/integration/install/test_supply.py",
    r"kubectl (apply|kustomize|logs) ": "tests/integration/kubernetes/test_manifests.py",
    r"sh deploy/debian/build\.sh |sudo dpkg ": "tests/integration/install/test_debian_package.py; people install it",
    r"ansible-playbook ": "tests/integration/slurm/test_ansible.py",
    r"clush ": "pytest -m fleet: tests/integration/ssh/test_clush.py",
    r"helm ": "pytest -m helm renders the chart; people install it",
    r"sudo install -d ": "people, on the host of slurmctld; tests/unit/gate/test_slurm_install.py runs the script",
    r"cosign ": "people, with a registry; the forms are those of its documentation",
    r"(skopeo|podman) ": "people, with a registry",
    r"\.venv/bin/python -I -c 'import preflight\.deploy": "tests/integration/install/test_packaging.py",
    r"(ANSIBLE=\S+ )?(\.venv/bin/)?python (-I )?-m \w": "the module exists, below",
}


def lines() -> Iterator[tuple[str, str]]:
    """Yield each line of the pages' shell blocks with its page, without its comment."""
    for page in sorted(PAGES):
        if page.name == "CHANGELOG.md":
            continue
        for block in re.findall(r"^ *```sh\n(.*?)^ *```$", page.read_text("utf-8"), re.M | re.S):
            for line in textwrap.dedent(block).replace("\\\n", " ").splitlines():
                if words := re.sub(r"(^|\s+)#( .*|$)", "", line).strip():
                    inner = re.search(r"\$\((preflight [^)]*)\)", words)  # sbatch --exclude="$(preflight …)"
                    yield str(page.relative_to(ROOT)), inner[1] if inner else words


LINES = {line: page for page, line in lines()}
OURS = [line for line in LINES if PREFLIGHT.match(line)]


def here(line: str) -> list[str]:
    """Return the words of a preflight command, with replacements for the reader's values."""
    command = line[PREFLIGHT.match(line).end() :].split(" | ")[0].split(" > ")[0]  # type: ignore[union-attr]
    for pattern, ours in HERE:
        command = re.sub(pattern, ours, command)
    return shlex.split(command)


@pytest.fixture(scope="module")
def farm() -> Iterator[Farm]:
    if not SSHD:
        pytest.skip("sshd is not installed")
    with Farm(2) as farm:
        yield farm


#: Files of a job that `preflight plan` reads.
JOB_FILES = {
    "train.sh": "torchrun --nproc-per-node 8 --nnodes 64 pretrain_gpt.py --num-layers 80 --hidden-size 8192 "
    "--num-attention-heads 64 --vocab-size 128256 --seq-length 8192 --micro-batch-size 1 --global-batch-size 512 "
    "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --use-distributed-optimizer --sequence-parallel\n",
    "ds_config.json": '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8, '
    '"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
    "config.json": '{"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14336, "hidden_act": "silu", '
    '"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256}',
}


def _switch_files(folder: Path) -> None:
    """Write the dumps of each switch of a fabric below ``switches``, and the archive of one."""
    fabric = Clos()
    for name in fabric.databases:
        own = folder / "switches" / name
        own.mkdir(parents=True)
        for file, text in fabric.dumps(name):
            (own / file).write_text(text, "utf-8")
    with tarfile.open(folder / "leaf1.tar.gz", "w:gz") as archive:
        archive.add(folder / "switches" / name, "leaf1/dump")


@pytest.fixture(scope="module")
def ran(farm: Farm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, commands.Ran]:
    """Run all commands, each page's in order, in a folder with the files that they name."""
    folder = tmp_path_factory.mktemp("documented")
    demo = ROOT / "preflight" / "demo"
    for name in ("evidence", "last-week"):
        shutil.copytree(demo, folder / name, ignore=shutil.ignore_patterns("*.py*", "*.toml", "__pycache__"))
    for name in ("job.log", "slurm-4711.out"):
        shutil.copy(demo / "job.log", folder / name)
    shutil.copy(demo / "cluster.toml", folder)
    for name in ("nhc.conf", "manifest.json"):
        shutil.copy(ROOT / "tests/data/conversion" / name, folder)
    records = json.loads((demo / "gpu001.json").read_text("utf-8"))["records"]
    training_job.main([str(folder / "traces"), "--data", "4"])
    (folder / "ibstat.txt").write_text(records["cmd:ibstat"]["out"], "utf-8")
    (folder / "ibnetdiscover.txt").write_text(fat_tree(4, down=2), "utf-8")
    (folder / "ras.txt").write_text(test_nccl_ras.OK, "utf-8")
    for case in cases("torch.stacks"):
        if case.path.stem == "all-wait":
            for rank in (0, 1):
                (folder / f"rank{rank}.txt").write_text(case.body["records"][f"log:rank{rank}.txt"], "utf-8")
    (folder / "-").write_text(records["cmd:nvidia-smi topo -m"]["out"], "utf-8")
    _switch_files(folder)
    for name, text in JOB_FILES.items():
        (folder / name).write_text(text, "utf-8")
    runs: list[list[str]] = []
    for line in OURS:
        if any(re.search(pattern, line) for pattern in PARSED):
            continue
        words = ["./-" if word == "-" and "read" in line.split() else word for word in here(line)]
        if "--hosts" in words or words[0] == "pair":
            words += ["--ssh-config", str(farm.ssh_config)] if "--from" not in words else []
        if words[0] == "gate":
            words += ["--state-dir", "state"]
        if words[0] == "learn":
            words += ["--force"]
        if words[0] == "bundle":
            words[words.index("-o") + 1] = f"{len(runs)}.tar.gz"
        runs.append(words)
    made = folder / "history.db"
    env = {**os.environ, "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    first = ["judge", "evidence", "--cluster", "cluster.toml", "--history", str(made), "--json", "report.json"]
    pair = ["pair", "127.77.0.1", "127.77.0.2", "--save", "pairs", "--ssh-config", str(farm.ssh_config)]
    return {shlex.join(done.words): done for done in commands.run([first, pair, *runs], folder, env, loaded=True)}


def test_every_command_of_preflight_runs(ran: dict[str, commands.Ran]) -> None:
    assert len(ran) > 30
    wrong = [
        f"{words}: {done.status}\n{done.output[-500:]}"
        for words, done in ran.items()
        if done.status not in (0, 1, 3) or re.search(r"unexpected error|NO ANSWER +127\.77", done.output)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("line", [line for line in OURS if any(re.search(pattern, line) for pattern in PARSED)])
def test_a_command_that_runs_elsewhere_is_parsed(line: str) -> None:
    name, *words = here(line)
    command = main.get_command(click.Context(main), name)
    if isinstance(command, click.Group):
        name, *words = words
        command = command.get_command(click.Context(command), name)
    assert command is not None
    assert command.make_context(name, words).params


@pytest.mark.parametrize("line", [line for line in OURS if " | jq " in line])
def test_what_jq_is_given(line: str, tmp_path: Path) -> None:
    if not shutil.which("jq"):
        pytest.skip("jq is not installed")
    shutil.copytree(
        ROOT / "preflight" / "demo", tmp_path / "evidence", ignore=shutil.ignore_patterns("*.py*", "*.toml")
    )
    (given,) = commands.run([here(line)], tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)})
    query = shlex.split(line.split(" | ", 1)[1])
    done = subprocess.run(query, input=given.output, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout or here(line)[0] == "check"  # this node may be healthy


def test_every_other_command_is_run_elsewhere() -> None:
    others = [line for line in LINES if line not in OURS]
    assert [line for line in others if not any(re.match(pattern, line) for pattern in OTHERS)] == []
    assert [pattern for pattern in OTHERS if not any(re.match(pattern, line) for line in others)] == []
    assert [pattern for pattern in PARSED if not any(re.search(pattern, line) for line in OURS)] == []


def test_every_module_that_a_page_starts_exists() -> None:
    modules = {name for line in LINES for name in re.findall(r"python (?:-I )?-m ([\w.]+)", line)} - {"mkdocs"}
    assert len(modules) > 5
    assert [name for name in modules if not _module(name).exists()] == []


def _module(name: str) -> Path:
    """Return the file of a module, or the entry point of a package."""
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__main__.py"
