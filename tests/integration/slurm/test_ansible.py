"""The Ansible role on hosts with a real sshd and a real Slurm, by Debian's ansible-core."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from tests.support.debian import FILES, package, small_wheel
from tests.support.paths import ROOT
from tests.support.slurm.cluster import missing
from tests.support.slurm.gpu_cluster import CLUSTER, Gpus
from tests.support.sshfarm import SSHD, keygen, public

_MISSING = (
    missing() or ("" if SSHD else "sshd") or ("" if os.path.exists("/usr/bin/ansible-playbook") else "ansible-core")
)

pytestmark = pytest.mark.skipif(bool(_MISSING), reason=f"no {_MISSING} here")

_SSHD = """\
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PidFile none
Subsystem sftp internal-sftp
"""
_SSH = """\
Host n*
 User root
 IdentityFile {folder}/user
 IdentitiesOnly yes
 UserKnownHostsFile {folder}/known_hosts
 StrictHostKeyChecking yes
"""
#: Gives a node folders of its own where the role and dpkg write, and its root an empty home folder.
_APART = """\
umount /opt /var/lib
mount -t tmpfs none /opt && mount -t tmpfs none /etc/slurm/preflight && mount -t tmpfs none /mnt
for kept in usr/bin usr/share var; do
    mkdir -p /mnt/$kept /mnt/scratch/$kept
    mount -t overlay none -o "lowerdir=/$kept,upperdir=/mnt/$kept,workdir=/mnt/scratch/$kept" /$kept
done
sed 's,^root:.*,root:x:0:0::/mnt:/bin/sh,' /etc/passwd >/mnt/passwd && mount --bind /mnt/passwd /etc/passwd
"""
_BARE = "dpkg --purge gpu-preflight; rm -rf /opt/* /etc/slurm/preflight/* /var/lib/preflight /var/cache/gpu-preflight"
_INVENTORY = """\
n1 preflight_package={folder}/gpu-preflight.deb
n2 preflight_package={folder}/preflight.pyz
n3 preflight_package={wheel} preflight_slurm=false preflight_cluster_file=
[all:vars]
ansible_python_interpreter=/usr/bin/python3
preflight_cluster_file={folder}/cluster.toml
"""
PAGE = ROOT / "docs/nodes.md"
PROGRAMS = {
    "n1": "/opt/preflight/bin/python3 -I -m preflight", "n2": "/usr/bin/python3 -I /opt/preflight/preflight.pyz",
}  # fmt: skip


def page_commands() -> list[str]:
    """Return the commands of the page: a dry run, then the installation."""
    commands = re.findall(r"^ansible-playbook .*$", PAGE.read_text().replace("\\\n", " "), re.M)
    assert ["--check" in line for line in commands] == [True, False]
    return commands


class ManagedNodes:
    """Three nodes without preflight, that Ansible reaches over SSH from slurmctld's host."""

    def __init__(self, slurm: Gpus) -> None:
        """Start the hosts, and write what an administrator has."""
        self.slurm, self.folder = slurm, slurm.folder / "site"
        self.folder.mkdir()
        keygen(self.folder / "user")
        host = public(keygen(self.folder / "host"))
        (self.folder / "known_hosts").write_text("".join(f"{name} {host}\n" for name in slurm.names))
        (self.folder / "ssh_config").write_text(_SSH.format(folder=self.folder))
        (self.folder / "sshd_config").write_text(_SSHD.format(folder=self.folder))
        (self.folder / "cluster.toml").write_text(CLUSTER)
        self.wheel = small_wheel(self.folder / "wheels")
        (self.folder / "inventory").write_text(_INVENTORY.format(folder=self.folder, wheel=self.wheel))
        self._packages()
        os.makedirs("/run/sshd", exist_ok=True)
        for index, name in enumerate(slurm.names, 1):
            subprocess.run([*slurm.on(name), "sh", "-ec", _APART], check=True)
            sshd = [str(SSHD), "-f", f"{self.folder}/sshd_config", "-o", f"ListenAddress=127.0.1.{index}"]
            subprocess.run([*slurm.on(name), *sshd], check=True)

    def bare(self) -> None:
        """Remove everything that the role has installed."""
        for name in self.slurm.names:
            subprocess.run([*self.slurm.on(name), "sh", "-c", _BARE], check=True, capture_output=True)

    def _packages(self) -> None:
        """Write the single file, and a Debian package of links to this environment."""
        tree = self.folder / "tree"
        (tree / "opt/preflight/bin").mkdir(parents=True)
        (tree / "opt/preflight/bin/python3").symlink_to(os.path.realpath(sys.executable))
        (tree / "opt/preflight/lib").symlink_to(f"{sys.prefix}/lib")
        shutil.copy(f"{sys.prefix}/pyvenv.cfg", tree / "opt/preflight")
        package(tree, self.folder / "gpu-preflight.deb")
        build = [sys.executable, "-m", "preflight.cli.zipapp", "-o", str(self.folder / "preflight.pyz")]
        subprocess.run(build, check=True, capture_output=True, cwd=ROOT)

    def play(self, command: str, *hosts: str) -> tuple[dict[str, dict[str, int]], str]:
        """Run a command of the page for these hosts; return the counts of each host, and the output."""
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C.UTF-8", "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_SSH_ARGS": f"-F {self.folder}/ssh_config -o ControlMaster=auto -o ControlPersist=60s",
            "ANSIBLE_LOCALHOST_WARNING": "0",
        }  # fmt: skip
        line = command.replace("deploy/", f"{ROOT}/deploy/", 1).replace("/srv/preflight/", f"{self.folder}/")
        words = (line if hosts == ("n1",) else re.sub(r" -e preflight_\S+", "", line)).split()
        argv = [f"/usr/bin/{words[0]}", *words[1:], f"--limit={','.join(hosts)}"]
        ran = self.slurm.run(["env", "-C", str(self.folder), *argv], env=environment)
        recap = re.findall(r"^(n\d) +: (.*)$", ran.stdout, re.M)
        counts = {name: {word: int(n) for word, n in re.findall(r"(\w+)=(\d+)", line)} for name, line in recap}
        return counts, ran.stdout + ran.stderr

    def on(self, name: str, *command: str) -> str:
        """Return the output of a command on a node."""
        return self.slurm.within(name, *command).stdout


@pytest.fixture(scope="module")
def site() -> Iterator[ManagedNodes]:
    with Gpus(3, gated=False) as slurm:
        yield ManagedNodes(slurm)


@pytest.mark.parametrize("hosts", [("n1",), pytest.param(("n1", "n2", "n3"), marks=pytest.mark.fleet)], ids=len)
def test_a_second_run_changes_nothing(site: ManagedNodes, hosts: tuple[str, ...]) -> None:
    site.bare()
    first, again = page_commands()
    dry, output = site.play(first, *hosts)
    assert {name: counts["failed"] for name, counts in dry.items()} == dict.fromkeys(hosts, 0), output
    assert all(counts["changed"] > 2 for counts in dry.values()), output
    for name in hosts:
        assert site.on(name, "ls", "/opt", "/etc/slurm/preflight") == "/etc/slurm/preflight:\n\n/opt:\n"

    done, output = site.play(again, *hosts)
    assert {name: counts["failed"] for name, counts in done.items()} == dict.fromkeys(hosts, 0), output
    assert "+Prolog=/etc/slurm/preflight/prolog" in output
    for name, program in PROGRAMS.items():
        if name in hosts:
            assert f'preflight="{program}"\n' in site.on(name, "cat", "/etc/slurm/preflight/prolog")
            assert site.on(name, "/etc/slurm/preflight/prolog") == ""
            assert site.on(name, "cat", "/etc/slurm/preflight/cluster.toml") == CLUSTER
            site.slurm.logged(f"{name}: pass", "slurm-prolog")

    same, output = site.play(again, *hosts)
    assert {name: (counts["changed"], counts["failed"]) for name, counts in same.items()} == dict.fromkeys(
        hosts, (0, 0)
    ), output  # fmt: skip


@pytest.mark.fleet
def test_another_package_and_a_cluster_file_that_is_not_valid(site: ManagedNodes) -> None:
    """The old cluster file remains in use; other wheels replace the link, and the old ones are the rollback."""
    again = page_commands()[1]
    before = site.on("n3", "readlink", "/opt/preflight")
    (site.folder / "cluster.toml").write_text("[class.h100]\nnodes = 3\n")
    small_wheel(site.folder / "wheels", {**FILES, "preflight/later.py": ""})
    counts, output = site.play(again, "n2", "n3")
    assert "failed to validate" in output
    assert [counts[name]["failed"] for name in ("n2", "n3")] == [1, 0], output
    assert site.on("n2", "cat", "/etc/slurm/preflight/cluster.toml") == CLUSTER
    assert before != site.on("n3", "readlink", "/opt/preflight")
    assert site.on("n3", "sh", "-c", "ls /opt/preflight/lib/*/site-packages/preflight/later.py")
    small_wheel(site.folder / "wheels")
    counts, output = site.play(again, "n3")
    assert counts["n3"]["changed"] == 1, output
    assert site.on("n3", "readlink", "/opt/preflight") == before


def test_the_role_lists_all_of_its_variables() -> None:
    """In the defaults, the specification of arguments and the page."""
    role = ROOT / "deploy/ansible/roles/preflight"
    specified = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text())
    page = set(re.findall(r"^\| `(preflight_\w+)` \|", PAGE.read_text(), re.M))
    assert set(specified) == page == {*defaults, "preflight_package"}
    own = {name for path in role.glob("tasks/*.yml") for name in re.findall(r"register: (\w+)", path.read_text())}
    derived = set(yaml.safe_load((role / "vars/main.yml").read_text())) | own | {"preflight_home", "preflight_wheels"}
    used = {name for path in role.glob("*/*.yml") for name in re.findall(r"\bpreflight_\w+", path.read_text())}
    assert used == derived | set(specified)
