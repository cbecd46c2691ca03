"""Our transport compared with clush, pdsh, xargs ssh and ansible, on real sshd.

Run ``python -m benchmarks.ssh_fanout --hosts 200 --rounds 3`` as root, from the top of the repository. All hosts are
one sshd in a separate network namespace, reached at many loopback addresses. The runs are interleaved; tools that are
not installed are listed and skipped. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import ssh_client
from tests.support.sshfarm import SSHD, addresses, keygen, public

USER, UID, PORT = "bench", 7078, 2222
CURVE = "KexAlgorithms=curve25519-sha256"
#: The key exchange that our transport prefers and every OpenSSH supports.
OURS = "ecdh-sha2-nistp256"
_INSIDE = "PREFLIGHT_BENCHMARK_INSIDE"
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h

#: Bytes of text that each node sends back when the collector is shipped: short random words, of which
#: about 100 kB travel.
TEXT_BYTES = 148_500

_SSHD = """\
Port {port}
ListenAddress 0.0.0.0
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
PidFile none
LogLevel ERROR
MaxStartups 4096
"""
_SSH = """\
Host 127.*
 Port {port}
 User {user}
 IdentityFile {folder}/user
 IdentitiesOnly yes
 UserKnownHostsFile {folder}/known_hosts
 GlobalKnownHostsFile /dev/null
 StrictHostKeyChecking yes
 BatchMode yes
 LogLevel ERROR
"""


@dataclass(frozen=True)
class Client:
    """One way to run a command on all hosts."""

    name: str
    kex: str
    command: Sequence[str]
    environment: Mapping[str, str]
    start_up: bool = False  # whether its last line has its start-up figures


@dataclass(frozen=True)
class FanoutSample:
    """Cost of one run: wall and CPU seconds; ``start_*`` is before the first connection."""

    wall_s: float
    client_cpu_s: float
    nodes_cpu_s: float
    answered: int
    start_wall_s: float = 0.0
    start_cpu_s: float = 0.0


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="names of clients, or parts of them, separated by commas")
    parser.add_argument(
        "--overrides", action="store_true", help="each override of paramiko taken out, not other clients"
    )
    parser.add_argument("--json", type=Path, help="also write all samples here")
    options = parser.parse_args()
    if os.environ.get(_INSIDE):
        _compare(options)
    else:
        _go_inside()


def _go_inside() -> None:
    """Start again in new network and mount namespaces, with a private loopback and user."""
    if os.getuid() != 0 or not SSHD or not shutil.which("unshare"):
        sys.exit("needs root, sshd and unshare")
    passwd = Path(tempfile.mkdtemp(prefix="fanout-")) / "passwd"
    passwd.write_text(f"{Path('/etc/passwd').read_text()}{USER}:*:{UID}:{UID}::/tmp:/bin/sh\n", encoding="utf-8")
    passwd.parent.chmod(0o755)
    script = 'mount --bind "$0" /etc/passwd && ip link set lo up && exec "$@"'
    again = [sys.executable, "-m", "benchmarks.ssh_fanout", *sys.argv[1:]]
    inside = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", script, str(passwd), *again]
    status = subprocess.run(inside, env={**os.environ, _INSIDE: "1"}, check=False).returncode
    shutil.rmtree(passwd.parent)
    sys.exit(status)


# --- the hosts ---------------------------------------------------------------------------------------


class Hosts:
    """One sshd under many addresses, and what clients need to reach it."""

    def __init__(self, number: int) -> None:
        self.names = addresses(number)
        self.folder = Path(tempfile.mkdtemp(prefix="fanout-"))
        self.folder.chmod(0o755)
        host = keygen(self.folder / "host")
        keygen(self.folder / "user")
        known_hosts = "".join(f"[{name}]:{PORT} {public(host)}\n" for name in self.names)
        (self.folder / "known_hosts").write_text(known_hosts, encoding="utf-8")
        self.list = self.folder / "hosts"
        self.list.write_text("\n".join(self.names) + "\n", encoding="utf-8")
        self.config = self.folder / "ssh_config"
        self.config.write_text(_SSH.format(port=PORT, user=USER, folder=self.folder), encoding="utf-8")
        words = [base64.b64encode(os.urandom(6)) for _ in range(TEXT_BYTES // 9)]
        (self.folder / "text").write_bytes(b"\n".join(words))
        config = self.folder / "sshd_config"
        config.write_text(_SSHD.format(port=PORT, folder=self.folder), encoding="utf-8")
        os.makedirs("/run/sshd", exist_ok=True)
        self._sshd = subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL)
        time.sleep(0.5)

    def cpu_s(self) -> float:
        """Return the CPU time of sshd and of its processes that have ended."""
        fields = Path(f"/proc/{self._sshd.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End sshd and remove the files."""
        self._sshd.terminate()
        self._sshd.wait(5)
        shutil.rmtree(self.folder)


# --- the clients -------------------------------------------------------------------------------------


def _clients(hosts: Hosts, overrides: bool) -> list[Client]:
    def executable(tool: str) -> str:
        beside = Path(sys.executable).with_name(tool)
        return str(beside) if beside.exists() else shutil.which(tool) or ""

    config, listed = str(hosts.config), str(hosts.list)
    shipped = _default_kex()
    ours = [sys.executable, "-m", "benchmarks.ssh_client"]
    ansible = {
        "ANSIBLE_HOST_KEY_CHECKING": "True", "ANSIBLE_SSH_ARGS": f"-F {config} -o ControlMaster=no",
        "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3", "ANSIBLE_STDOUT_CALLBACK": "minimal",
        "ANSIBLE_PIPELINING": "True", "HOME": str(hosts.folder),
    }  # fmt: skip
    clients = [
        Client("preflight, trivial command", OURS, [*ours, "trivial", str(hosts.folder)], {}, True),
        Client("preflight, collector + 100 kB", OURS, [*ours, "collect", str(hosts.folder)], {}, True),
    ]
    if overrides:
        return (
            clients[:1]
            + [
                Client(f"without: {name}", OURS, [*ours, "trivial", str(hosts.folder), name], {}, True)
                for name in (*ssh_client.OVERRIDES, ssh_client.IMPORT)
            ]
            + [Client("plain paramiko", OURS, clients[0].command, {"PREFLIGHT_PLAIN_PARAMIKO": "1"}, True)]
        )
    if xargs := executable("xargs"):
        ssh = [xargs, "-a", listed, "-P", "32", "-I{}", "ssh", "-F", config]
        clients.append(Client("xargs -P32 ssh", "curve25519", [*ssh, "-o", CURVE, "{}", "echo ok"], {}))
        clients.append(Client("xargs -P32 ssh", shipped, [*ssh, "{}", "echo ok"], {}))
    if clush := executable("clush"):
        run = [clush, "-f", "64", "--hostfile", listed, "-o"]
        clients.append(Client("clush -f64", "curve25519", [*run, f"-F {config} -o {CURVE}", "echo ok"], {}))
        clients.append(Client("clush -f64", shipped, [*run, f"-F {config}", "echo ok"], {}))
    if pdsh := executable("pdsh"):
        run = [pdsh, "-R", "ssh", "-f", "32", "-w", f"^{listed}", "echo ok"]
        clients.append(Client("pdsh -f32", shipped, run, {"PDSH_SSH_ARGS_APPEND": f"-F {config}"}))
    if tool := os.environ.get("ANSIBLE") or executable("ansible"):
        for module in ("raw", "command"):
            run = [tool, "all", "-i", listed, "-f", "32", "-m", module, "-a", "echo ok"]
            clients.append(Client(f"ansible {module} -f32", shipped, run, ansible))
    return clients


def _default_kex() -> str:
    """Return the key exchange that OpenSSH of this version negotiates with itself."""
    settings = subprocess.run(["ssh", "-F", "none", "-G", "x"], capture_output=True, text=True, check=True).stdout
    listed = next(line for line in settings.splitlines() if line.startswith("kexalgorithms "))
    return listed.split()[1].split(",")[0].partition("@")[0]


# --- the comparison ----------------------------------------------------------------------------------


def _run(client: Client, hosts: Hosts) -> FanoutSample:
    before_s, began = hosts.cpu_s(), time.perf_counter()
    process = subprocess.Popen(
        client.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, **client.environment},
    )  # fmt: skip
    assert process.stdout
    lines = process.stdout.read().splitlines()
    _, process.returncode, used = os.wait4(process.pid, 0)
    process.stdout.close()
    wall_s = time.perf_counter() - began
    time.sleep(1)  # sshd reaps its children; those that briefly outlive it are reaped here
    nodes_cpu_s = hosts.cpu_s() - before_s + _reaped_cpu_s()
    started = json.loads(lines[-1]) if client.start_up else {"wall_s": 0.0, "cpu_s": 0.0}
    answered = sum(line.strip() == "ok" or line.endswith(": ok") for line in lines)
    return FanoutSample(
        wall_s, used.ru_utime + used.ru_stime, nodes_cpu_s, answered, started["wall_s"], started["cpu_s"]
    )


def _reaped_cpu_s() -> float:
    """Reap the orphans that have ended and return their CPU time; sshd keeps running."""
    total_s = 0.0
    while (reaped := os.wait4(-1, os.WNOHANG))[0]:
        total_s += reaped[2].ru_utime + reaped[2].ru_stime
    return total_s


def _compare(options: argparse.Namespace) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    hosts = Hosts(options.hosts)
    try:
        words = options.only.split(",")
        clients = [
            client for client in _clients(hosts, options.overrides) if any(word in client.name for word in words)
        ]
        samples: dict[tuple[str, str], list[FanoutSample]] = {}
        for number in range(options.rounds):
            for client in clients if number % 2 == 0 else reversed(clients):
                samples.setdefault((client.name, client.kex), []).append(_run(client, hosts))
    finally:
        hosts.stop()
    _print(samples, options.hosts, options.rounds)
    if options.json:
        document = {f"{name} ({kex})": [asdict(sample) for sample in group] for (name, kex), group in samples.items()}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _print(samples: Mapping[tuple[str, str], Sequence[FanoutSample]], number: int, rounds: int) -> None:
    ours = next(iter(samples.values()))
    ours_s = statistics.median(s.wall_s for s in ours)
    floor_s = statistics.median(s.nodes_cpu_s for s in ours) / (os.cpu_count() or 1)
    print(f"{number} hosts, {rounds} rounds interleaved, {os.cpu_count()} CPUs shared with the hosts; medians")
    print("ours / theirs: wall time of our trivial command over the wall time of that row, start-up included")
    print(f"floor: the same for a client that costs nothing; the nodes' own work alone takes {floor_s:.2f} s here\n")
    head = (
        "client", "key exchange", "wall s", "ours / theirs", "floor", "client CPU ms/host", "less start-up",
        "nodes' CPU ms/host", "unanswered",
    )  # fmt: skip
    print(("| {} " * len(head) + "|").format(*head))
    print("|---|---" + "|--:" * (len(head) - 2) + "|")
    for (name, kex), group in samples.items():
        wall_s = statistics.median(s.wall_s for s in group)
        cpu_ms = 1000 * statistics.median(s.client_cpu_s for s in group) / number
        running_ms = 1000 * statistics.median(s.client_cpu_s - s.start_cpu_s for s in group) / number
        nodes_ms = 1000 * statistics.median(s.nodes_cpu_s for s in group) / number
        missing = max(number - s.answered for s in group)
        print(
            f"| {name} | {kex} | {wall_s:.2f} | {ours_s / wall_s:.3f} | {floor_s / wall_s:.3f} | {cpu_ms:.1f} "
            f"| {running_ms:.1f} | {nodes_ms:.1f} | {missing} |"
        )


if __name__ == "__main__":
    main()
