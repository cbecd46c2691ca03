"""The recipe of the page for many nodes behind gateways: ClusterShell's tree over real SSH."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import ClusterShell
import pytest

from tests.support.in_process import run
from tests.support.paths import ROOT
from tests.support.sshfarm import SSHD, Farm, View

pytestmark = [pytest.mark.fleet, pytest.mark.skipif(not SSHD or os.getuid() != 0, reason="needs sshd and root")]

GATEWAYS, NODES = ("127.77.0.1", "127.77.0.2"), ("127.77.0.3", "127.77.0.4", "127.77.0.5", "127.77.0.6")
PYTHON, ARCHIVE = "/usr/bin/python3", "/opt/preflight/preflight.pyz"
#: ssh of a gateway, with a key of its user.
_SSH = """\
umask 077
cp {key} ~/.key
echo "gateway of $*" >>{log}
exec /usr/bin/ssh -F {config} -i ~/.key "$@"
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The single file, where each node has it."""
    path = tmp_path_factory.mktemp("build") / "preflight.pyz"
    subprocess.run([sys.executable, "-m", "preflight.cli.zipapp", "-o", str(path)], check=True, capture_output=True,
                   cwd=ROOT)  # fmt: skip
    return path


@pytest.fixture(scope="module")
def farm(archive: Path) -> Iterator[Farm]:
    with Farm(len(GATEWAYS) + len(NODES)) as farm:
        library = farm.directory / "python"
        shutil.copytree(Path(ClusterShell.__file__).parent, library / "ClusterShell")
        config, key, log = farm.directory / "gateway_config", farm.directory / "gateway_key", farm.directory / "log"
        config.write_text("".join(
            line for line in farm.ssh_config.read_text().splitlines(True) if "IdentityFile" not in line
        ))  # fmt: skip
        shutil.copy(farm.key, key)
        for path, mode in ((key, 0o644), (log, 0o666), (farm.known_hosts, 0o644)):
            path.touch()
            path.chmod(mode)
        for host in GATEWAYS:
            farm.view(host, View(environment={"PYTHONPATH": str(library)},
                                 tools={"ssh": _SSH.format(key=key, config=config, log=log)}))  # fmt: skip
        for host in NODES:
            farm.view(host, View(hostname=f"gpu{host[-1]}", files={ARCHIVE: archive.read_bytes()}))
        yield farm


def page() -> tuple[str, list[str]]:
    """Return the topology of the page and the commands below it."""
    text = (ROOT / "docs/nodes.md").read_text("utf-8")
    section = text[text.index("### Through gateways") :].replace("\\\n", "")
    (routes,) = re.findall(r"```ini\n(.*?)```", section, re.S)
    return routes, re.findall(r"```sh\n(.*?)```", section, re.S)[0].splitlines()


def test_nodes_behind_two_gateways_judge_themselves(farm: Farm, tmp_path: Path) -> None:
    routes, (collect, judge) = page()
    names = {"head": subprocess.check_output(["uname", "-n"], text=True).split(".")[0].strip(),
             "gw[1-2]": "127.77.0.[1-2]", "gpu[001-400]": "127.77.0.[3-6]"}  # fmt: skip
    for name, here in names.items():
        routes, collect = routes.replace(name, here), collect.replace(name, here)
    (tmp_path / "topology.conf").write_text(routes)
    collect = collect.replace(" --cluster /etc/slurm/preflight/cluster.toml", "").removesuffix(" >/dev/null")
    words = shlex.split(collect.replace("/opt/preflight/bin/python3 -I -m preflight", f"{PYTHON} -I {ARCHIVE}"))
    assert words[0] == "clush"
    argv = [f"{sys.prefix}/bin/clush", "-o", f"-F {farm.ssh_config}", *words[1:]]
    farm.fault(NODES[-1], "refuse")
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, "CLUSTERSHELL_GW_PYTHON_EXECUTABLE": PYTHON})  # fmt: skip
    assert f"{NODES[-1]}: " in done.stderr, done
    assert {path.name for path in (tmp_path / "evidence").iterdir() if path.stat().st_size} == set(NODES[:-1])
    through = farm.directory.joinpath("log").read_text().splitlines()
    assert {host for host in NODES for line in through if host in line} == set(NODES)
    files = sorted(str(path) for path in (tmp_path / "evidence").iterdir())
    assert judge.startswith("preflight judge evidence/* ")
    report = json.loads(run("judge", *files, "--json", expect=(0, 1, 3)))
    answered = {node["name"]: node.get("no_answer") for node in report["nodes"]}
    assert {name for name, problem in answered.items() if not problem} == {"gpu3", "gpu4", "gpu5"}, answered
    assert len(answered) == len(files)
