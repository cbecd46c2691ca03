"""ClusterShell's groups are shell templates: only plain names that the operator types are looked up."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight import nodeset
from preflight.cli import app
from preflight.expectations.cluster_file import ClusterFileError, decode
from tests.support import commands
from tests.support.fixture import whole_node
from tests.support.paths import ROOT

#: Texts that ClusterShell takes for a group, a wildcard or a node of one; with ``touch PWNED`` for a shell.
GROUPS = (
    "@evil:x;touch${IFS}PWNED[1-2]", "@sr:x;touch${IFS}PWNED[1-2]", "@x;touch${IFS}PWNED", "@evil:$(touch${IFS}PWNED)",
    "@evil:x|touch${IFS}PWNED,n1", "n1!@evil:`touch${IFS}PWNED`", "@evil:x[1-2]", "@x", "@*", "@evil:*", "@@evil", "*",
    "gpu*", "n?[1-2]", "n1,@evil:x", "n1&@sr:y", "n1^@x[1-3]", "@evil:x;touch PWNED;[1-2]", "@@sr,n[1-2]",
)  # fmt: skip

#: A group source with every kind of command; each leaves a mark.
CONF = """\
[Main]
default: evil
confdir:
autodir:
[evil,sr]
map: touch {marks}/map; echo bait$(echo $GROUP | wc -c)
all: touch {marks}/all; echo bait1
list: touch {marks}/list; echo "x 'x;touch PWNED'"
reverse: touch {marks}/reverse; echo x
"""

#: Where an environment names nodes.
VARIABLES = (
    "MASTER_ADDR", "OMPI_MCA_orte_node_regex", "PRTE_MCA_prte_node_regex", "SLURM_JOB_NODELIST", "SLURM_NODELIST",
    "SLURM_STEP_NODELIST", "SLURMD_NODENAME", "SLURM_TOPOLOGY_ADDR", "SLURM_LAUNCH_NODE_IPADDR", "LSB_HOSTS",
    "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_COMM_ID", "HOSTNAME", "PMIX_HOSTNAME", "PBS_NODEFILE",
)  # fmt: skip


def evidence(name: str, number: int) -> dict[str, Any]:
    """Return a node with many such texts among its names and values."""
    document: dict[str, Any] = json.loads(json.dumps(whole_node("hgx-h100-roce")))
    texts = cycle(GROUPS[number:] + GROUPS[:number])
    document |= {"node": name, "origin": next(texts)}
    records = document["records"]
    for key, record in records.items():
        if key.startswith("env:") and isinstance(record, dict):
            record["value"] = next(texts)
        elif key.endswith(("hostname", "nodename")) and isinstance(record, dict):
            record["out"] = f"{next(texts)}\n"
    for variable in VARIABLES:
        records[f"env:{variable}"] = {"status": "ok", "value": next(texts)}
    records["cmd:squeue"] = {"status": "ok", "rc": 0, "out": f"JOBID NODELIST\n7 {next(texts)}\n"}
    records["env:ranks"] = {"status": "ok", "value": {"processes": [
        {"pid": 7, "env": {variable: next(texts) for variable in VARIABLES}}]}}  # fmt: skip
    return document


class SiteFiles:
    """Hostile files, and a ClusterShell configuration that leaves marks."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.marks = folder, folder / "marks"
        (self.marks / "shell").mkdir(parents=True)
        (self.marks / "shell" / "groups.conf").write_text(CONF.format(marks=self.marks), encoding="utf-8")
        (folder / "evidence").mkdir()
        for number in range(3):
            node = GROUPS[number] if number % 2 else f"node{number}"
            (folder / "evidence" / f"{number}.json").write_text(json.dumps(evidence(node, number)), encoding="utf-8")
        lines = [f"{text}:10:10 [0] NCCL INFO cudaDriverVersion 12040\n"
                 f"MASTER_ADDR={text}\nSLURM_JOB_NODELIST={text}\nOMPI_MCA_orte_node_regex={text}\nNodeList={text}\n"
                 for text in GROUPS]  # fmt: skip
        (folder / "job.log").write_text("".join(lines), encoding="utf-8")
        for saved in ("class.all", "waiver"):
            text = f'[class.a]\ngpus = 8\n\n[{saved}]\nnodes = "@evil:rack1"\n'
            if saved == "waiver":
                text = text.replace("[waiver]", "[[waiver]]") + 'check = "gpu.count"\nowner = "x"\nreason = "y"\n'
            (folder / saved / "expected").mkdir(parents=True)
            (folder / saved / "expected" / "cluster.toml").write_text(text, encoding="utf-8")
            (folder / saved / "0.json").write_text(json.dumps(evidence("node0", 0)), encoding="utf-8")
        (folder / "cluster.toml").write_text("[class.all]\ngpus = 8\nhcas = 8\n", encoding="utf-8")
        (folder / "map.txt").write_text("n1\n", encoding="utf-8")
        self.env = {"CLUSTERSHELL_CFGDIR": str(self.marks / "shell"), "PYTHONPATH": str(ROOT), "HOME": str(folder),
                    "STATE_DIRECTORY": str(folder / "state"), "SLURM_JOB_ID": "7", "SLURM_HET_SIZE": "2"}  # fmt: skip
        self.env |= dict.fromkeys(VARIABLES, GROUPS[0])
        self.env |= {f"SLURM_JOB_NODELIST_HET_GROUP_{part}": GROUPS[part] for part in range(2)}

    def run(self, *runs: Sequence[str], env: Mapping[str, str] = {}) -> list[commands.Ran]:
        """Run commands; each must end with a documented status and no traceback."""
        done = list(commands.run(runs, self.folder, {**self.env, **env}, loaded=True))
        assert len(done) == len(runs)
        for one in done:
            assert "Traceback" not in one.output, (one.words, one.output[-1500:])
            assert one.status in (0, 1, 2, 3), (one.words, one.status, one.output[-500:])
        return done

    def smuggled(self) -> list[Path]:
        """Return the files that a command in a text has created anywhere."""
        return [path for path in self.folder.rglob("PWNED*") if not path.suffix]

    def left(self) -> set[str]:
        """Return the marks left by commands of groups, and by injected commands."""
        found = {path.name for path in self.marks.iterdir()} | {path.name for path in self.smuggled()}
        return found - {"shell"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> SiteFiles:
    return SiteFiles(tmp_path_factory.mktemp("groups"))


@pytest.fixture
def rank() -> Iterator[None]:
    """A process that looks like a rank of a job, of an ordinary user if root can start one."""
    variables = [f"{name}={GROUPS[0]}" for name in VARIABLES]
    user = 65534 if os.geteuid() == 0 else None
    argv = ["env", "LOCAL_RANK=0", "RANK=0", "WORLD_SIZE=2", "NCCL_DEBUG=INFO", *variables, "sleep", "300"]
    with subprocess.Popen(argv, user=user, cwd="/") as process:
        yield
        process.kill()


#: Every command, with hostile text in each place that it reads.
RUNS: dict[tuple[str, ...], list[list[str]]] = {
    ("check",): [["check", "--save", "here", "--log", "job.log", "--history", "past.db", "--json", "here.json"]],
    ("pair",): [["pair", text, "n1"] for text in GROUPS[:3]],
    ("bench",): [["bench", "--hosts", text, "--gpus", "1", "--print"] for text in GROUPS[:3]],
    ("gate",): [["gate", hook, "--cluster", "cluster.toml", "--state-dir", "state"] for hook in (
        "slurm-prolog", "slurm-healthcheck", "slurm-step", "slurm-controller", "init-container", "ci")],
    ("collect",): [["collect", "-o", "collected.json"]],
    ("judge",): [["judge", "evidence", "--log", "job.log", "--json", "report.json", "--html", "page.html", "--junit",
                  "junit.xml", "--textfile", "p.prom", "--save", "saved", "--history", "past.db", "-v"],
                 ["judge", "here", "--cluster", "cluster.toml"], ["check", "--rerun", "report.json"]],
    ("diff",): [["diff", "evidence", "report.json"], ["diff", "report.json", "here.json"]],
    ("history", "runs"): [["history", "runs", "past.db"]],
    ("history", "node"): [["history", "node", "past.db", text] for text in GROUPS[:3]],
    ("history", "figures"): [["history", "figures", "past.db", GROUPS[0]]],
    ("history", "job"): [["history", "job", "past.db", GROUPS[0], "--seconds", "3", "--name", GROUPS[1]]],
    ("history", "jobs"): [["history", "jobs", "past.db"]],
    ("lint",): [["lint", "cluster.toml", "evidence"], ["lint", "learnt.toml", "evidence"]],
    ("learn",): [["learn", "evidence", "-o", "learnt.toml"], ["learn", "evidence/1.json", "-o", "one.toml"]],
    ("read",): [["read", "job.log", "evidence/1.json"], ["read", "report.json"]],
    ("plan",): [["plan", "job.log"], ["plan", "train.py --num-layers 2 --hidden-size 8", "--cluster", "cluster.toml"]],
    ("trace",): [["trace", "job.log"], ["trace", "evidence", "--cluster", "cluster.toml"]],
    ("redact",): [["redact", "evidence", "here", "job.log", "report.json", "-o", "redacted"]],
    ("bundle",): [["bundle", "evidence", "-o", "case.tar.gz"], ["bundle", "report.json", "-o", "report.tar.gz"],
                  ["bundle", "here", "-o", "here.tar.gz"], ["judge", "case.tar.gz"]],
    ("demo",): [["demo"]],
    ("probes",): [["probes"]],
    ("list",): [["list"]],
    ("explain",): [["explain", GROUPS[0]]],
    ("checklist",): [["checklist", "evidence"]],
    ("show",): [["show", "--from", "evidence"], ["show", "--from", "report.json", "--by", "node"],
                ["show", "--bad", "--from", "evidence"], ["show", GROUPS[0], "--from", "evidence"]],
    ("slurm", "install"): [["slurm", "install", "--folder", GROUPS[0]],
                           ["slurm", "install", "--cluster", "cluster.toml"]],
    ("slurm", "uninstall"): [["slurm", "uninstall", "--folder", GROUPS[0]]],
    ("help",): [["help", GROUPS[0]]],
    ("version",): [["version"]],
    ("completion",): [["completion", "bash"]],
}  # fmt: skip

#: Every command that uses the cluster file next to foreign evidence.
SAVED = [
    [*words, *more]
    for folder in ("class.all", "waiver")
    for words, more in (
        (["judge", folder], []), (["checklist", folder], []), (["diff", folder, "evidence"], []),
        (["diff", "evidence", folder], []), (["learn", folder], ["-o", f"{folder}.toml"]),
        (["bundle", folder], ["-o", f"{folder}.tar.gz"]), (["redact", folder], ["-o", f"{folder}.redacted"]),
        (["show", "--from", folder], []),
        (["judge", f"{folder}/0.json"], []),
    )
]  # fmt: skip

#: Commands whose output others read come first.
_FIRST = (("check",), ("judge",), ("learn",))


def test_every_command_is_driven() -> None:
    assert set(RUNS) == set(commands.leaves())


def test_no_text_of_others_is_looked_up(site: SiteFiles, rank: None) -> None:
    """``redact``, ``bundle`` and ``learn`` used to run it; a learnt file was read with groups."""
    in_order = [*_FIRST, *(name for name in RUNS if name not in _FIRST)]
    done = site.run(*(words for name in in_order for words in RUNS[name]))
    assert not site.left(), f"left by one of {[one.words for one in done]}"
    assert GROUPS[0] in (site.folder / "here" / f"{os.uname().nodename}.json").read_text("utf-8"), "the rank was read"
    learnt = decode((site.folder / "learnt.toml").read_bytes(), "learnt.toml")
    assert all(nodeset.is_name(node) for one in learnt.classes.values() for node in one.nodes or ())


def test_no_group_of_a_cluster_file_beside_evidence_is_looked_up(site: SiteFiles) -> None:
    """A colleague's evidence with `nodes = "@evil:rack1"` next to it used to run the site's command for groups."""
    for done in site.run(*SAVED):
        if done.words[0] in ("judge", "checklist"):
            assert "groups are resolved only for names that you type" in " ".join(done.output.split())
    assert not site.left()


#: Words that the operator types and that may name a group; TEXT is inserted in their place.
TYPED = [
    ["check", "--hosts", "TEXT"], ["check", "--hostfile", "hosts"], ["bundle", "here", "--nodes", "TEXT", "-o", "b.gz"],
    ["redact", "job.log", "--hosts", "TEXT", "-o", "out.log"], ["learn", "--hosts", "TEXT", "-o", "x.toml"],
    ["lint", "typed.toml"], ["gate", "slurm-controller", "--hosts", "TEXT", "--cluster", "cluster.toml"],
    ["judge", "evidence/0.json", "--cluster", "typed.toml"], ["bundle", "evidence", "--hosts", "TEXT", "-o", "c.tgz"],
]  # fmt: skip


@pytest.mark.parametrize("text", [text for text in GROUPS if "PWNED" in text][::2])
def test_no_shell_word_is_looked_up_even_where_the_operator_typed_it(site: SiteFiles, text: str) -> None:
    typed(site, text)
    for one in site.run(*([text if word == "TEXT" else word for word in words] for words in TYPED)):
        assert one.status in (2, 0) if one.words[0] == "gate" else one.status == 2, (one.words, one.output)
        if "@" in text and "[" not in text and one.words[0] != "gate":
            assert "a group name may only contain letters, digits and . : + * @ _ -" in " ".join(one.output.split())
    assert not site.smuggled()


def typed(site: SiteFiles, text: str) -> None:
    (site.folder / "hosts").write_text(text + "\n", encoding="utf-8")
    (site.folder / "typed.toml").write_text(f"[class.a]\nnodes = {json.dumps(text)}\n", encoding="utf-8")
    for path in site.marks.iterdir():
        if path.is_file():
            path.unlink()


def test_a_group_of_the_operator_is_looked_up(site: SiteFiles) -> None:
    typed(site, "@evil:rack.1-a_b+c")
    done = site.run(
        ["lint", "typed.toml"], ["bundle", "evidence", "--nodes", "@rack1", "-o", "x.tar.gz"],
        ["redact", "job.log", "--hosts", "@rack1", "-o", "y.log"],
    )  # fmt: skip
    assert "bait13" in done[0].output
    assert done[1].status == 2
    assert "no evidence of bait6" in done[1].output
    assert done[2].status == 3, "the group is known, and no host of the log is in it"
    assert site.left() == {"map"}


def test_names_that_a_group_source_lists_are_plain_too(site: SiteFiles) -> None:
    """``evil`` has no ``all``: its groups are listed, possibly with names from users, and each is looked up."""
    conf = site.marks / "shell" / "groups.conf"
    before = conf.read_text("utf-8")
    conf.write_text("".join(line + "\n" for line in before.splitlines() if not line.startswith("all:")), "utf-8")
    try:
        for text in ("@evil:*", "bait*"):
            (one,) = site.run(["bundle", "evidence", "--nodes", text, "-o", "z.tar.gz"])
            assert one.status == 2
            assert "a group name may only contain" in one.output
            assert not site.smuggled()
    finally:
        conf.write_text(before, "utf-8")


# --- wildcards in a cluster file ---


@pytest.mark.parametrize("text", ['"*"', '"gpu*"', '"gpu00?"', '"@*"', '["n1", "*"]', '"n[1-2],*!n1"'])
def test_a_wildcard_in_a_cluster_file_is_an_error(text: str, tmp_path: Path) -> None:
    """``nodes = "*"`` used to be valid and to mean ClusterShell's sample groups; the gate let jobs start."""
    path = tmp_path / "cluster.toml"
    path.write_text(f"[class.a]\ngpus = 8\nnodes = {text}\n", encoding="utf-8")
    done = CliRunner().invoke(app.main, ["lint", str(path)])
    assert done.exit_code == 2
    output = " ".join(done.output.split())
    assert f"{path}:3: class.a.nodes: " in output.replace(f"{path.parent}/ ", f"{path.parent}/")
    assert "takes no wildcard" in output
    assert "omit the key for all" in output
    (gate,) = commands.run(
        [["gate", "ci", "--cluster", str(path), "--state-dir", str(tmp_path / "state")]], tmp_path,
        {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert gate.status == 2, gate.output
    assert "CONFIGURATION ERROR" in gate.output
    assert "takes no wildcard" in gate.output


def test_a_class_without_nodes_holds_all() -> None:
    assert decode(b"[class.a]\ngpus = 8\n", "x").classes["a"].nodes is None


@pytest.mark.parametrize("text", ["@evil", "mlx5_*", "mlx5_?"])
def test_devices_have_no_groups(text: str) -> None:
    with pytest.raises(ClusterFileError, match="a device has no"):
        decode(f'[class.a]\n[class.a.ports]\ncompute = "{text}"\n'.encode(), "x")


# --- foreign names are taken literally ---


@pytest.mark.parametrize(
    "text", [text for text in GROUPS if nodeset.how_many(text) == 1 and not set(text) & set(",!&^ ")]
)
def test_without_groups_a_name_is_a_name(text: str) -> None:
    assert nodeset.unfold(text) == (text,)


@pytest.mark.parametrize("text", [
    "a0-99990-99999999[1-20-999999]b[3-4]", "a9999[1-99999]", "n[-90000000-90000000]", "n[1-9_99_999_999]",
    "n[+1-+999999999]", "n[１-９９９９９９９９９]",
])  # fmt: skip
def test_ranges_that_the_library_reads_otherwise_are_refused_at_once(text: str) -> None:
    """There used to be an AssertionError("range too large"), and ranges of 10^9 names were counted as few."""
    with pytest.raises(ValueError, match=r"names \d+ nodes"):
        nodeset.unfold(text)


@pytest.mark.parametrize("names", [["a[1-999999999]"], ["@x", "n1"], ["a,b", "*"], ["n[1", "n2"]])
def test_folding_unfolds_nothing(names: list[str]) -> None:
    assert nodeset.fold(names) == ",".join(names)


# --- lint ---


def test_no_nodeset_is_made_with_groups_but_in_one_place() -> None:
    """A bare ``NodeSet(`` looks groups up; only a few places handle the operator's own text."""
    typed = {
        "collect/targets.py", "gate/job_hook.py", "commands/redact.py", "commands/bundle.py", "expectations/schema.py",
    }  # fmt: skip
    found = set()
    for folder in ("preflight", "checks", "reports"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT / folder).as_posix()
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, (ast.Import, ast.ImportFrom)) and "ClusterShell" in ast.dump(node):
                    assert name == "nodeset.py", path
                if not isinstance(node, ast.Call):
                    continue
                made, given = ast.unparse(node.func), {keyword.arg for keyword in node.keywords}
                if made.split(".")[0] == "NodeSet":
                    assert "resolver" in given, f"{path}:{node.lineno}: NodeSet without a resolver looks groups up"
                if made.endswith("unfold") and "groups" in given:
                    found.add(name)
    assert found == typed
