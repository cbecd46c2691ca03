"""A list of 5,000 names, 4,990 of which do not resolve: a clear, folded answer in bounded time and memory.

The resolver is real, and so is its server: one that answers "no such name" to all, or one that never answers. Both run
in a separate network namespace, and so do the ten hosts. Needs root, sshd and unshare.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.sshfarm import Farm, network
from tests.support.sshfarm.marks import needs_farm
from tests.support.stopwatch import Stopwatch

pytestmark = [needs_farm, pytest.mark.skipif(bool(network.missing()), reason="needs a private network")]

NAMESERVER = "127.77.255.53"
NAMES, REAL = 5000, 10
HANGS_S = 12.0  # : two tries of the resolver, 5 s each (resolv.conf(5)); some of the names are reported as such


@pytest.mark.parametrize(("via", "server"), [("ssh", "denies"), ("openssh", "denies"), ("ssh", "hangs")])
def test_five_thousand_names(via: str, server: str, tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text(f"nameserver {NAMESERVER}\n", encoding="utf-8")
    (tmp_path / "nsswitch.conf").write_text("hosts: files dns\n", encoding="utf-8")
    script = (
        'ip link set lo up && mount --bind "$0/resolv.conf" /etc/resolv.conf && '
        'mount --bind "$0/nsswitch.conf" /etc/nsswitch.conf && exec "$@"'
    )
    command = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", script, str(tmp_path)]
    command += [sys.executable, "-m", "tests.integration.ssh.test_many_names", via, server]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert ran.returncode == 0, ran.stderr
    result: dict[str, Any] = json.loads(ran.stdout)
    assert result["documents"] == NAMES
    assert result["seconds"] < (60 if server == "denies" else HANGS_S + 6)
    assert result["peak_mb"] < 300
    assert result["threads"] < 250
    if server == "denies":
        assert result["answered"] == REAL
        assert [phase for phase, _, _ in result["silent"]] == ["resolve"]
        assert result["lines"] < 160, "the answer is folded: a few lines for a check, none for a node"
    else:
        assert {phase for phase, _, _ in result["silent"]} == {"resolve", "queue"}
        assert result["lines"] < 160


def _serve(server: str) -> None:
    """Answer every query with NXDOMAIN, or do not answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind((NAMESERVER, 53))
        while True:
            question, client = listener.recvfrom(2000)
            if server == "denies":
                listener.sendto(question[:2] + b"\x81\x83" + question[4:6] + bytes(6) + question[12:], client)


def _peak_mb() -> float:
    """Return the peak memory of this process; ru_maxrss also includes the time before it became Python."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _main(via: str, server: str) -> None:
    from preflight.checks import registry
    from preflight.collect.scheduler import Limits, gather
    from preflight.collect.targets import resolve
    from preflight.evidence import document as evidence
    from preflight.judge import judge
    from preflight.probes.probe import plan
    from preflight.reports.text_report import render
    from preflight.transport.ssh.openssh import OpenSshTransport
    from preflight.transport.ssh.paramiko_transport import SshOptions, SshTransport

    threading.Thread(target=_serve, args=(server,), daemon=True).start()
    with Farm(REAL) as farm, tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "ssh_config"
        stanzas = [f"Host n{number:04d}\n HostName {host}\n" for number, host in enumerate(farm.hosts)]
        config.write_text("".join(stanzas) + farm.ssh_config.read_text().replace("Host 127.*", "Host *"))
        watch = Stopwatch()
        hosts = resolve(hosts=f"n[0000-{NAMES - 1}]")
        transport = SshTransport(SshOptions(config), hosts) if via == "ssh" else OpenSshTransport(config, hosts)
        chosen = registry()
        limits = Limits(fanout=64, node_s=60, run_s=300) if server == "denies" else Limits(64, HANGS_S, HANGS_S)
        documents, threads = list[evidence.Evidence](), 0

        def plan_for(host: str, deadline_s: float) -> dict[str, Any]:
            return plan((), node=host, deadline_s=deadline_s) | {"probes": [_echo()]}

        for document in gather(hosts, transport, plan_for, limits):
            documents.append(document)
            threads = max(threads, threading.active_count())
        seconds = watch.seconds
        transport.close()
        report = judge(sorted(documents, key=lambda d: d.node), chosen.checks)
        text = render(report, width=120)
    silent: dict[tuple[str, str], int] = {}
    for document in documents:
        if document.no_answer:
            key = (document.no_answer["phase"], document.no_answer["reason"])
            silent[key] = silent.get(key, 0) + 1
    result = {
        "documents": len(documents), "answered": sum(d.answered for d in documents), "seconds": seconds,
        "silent": sorted((phase, reason, count) for (phase, reason), count in silent.items())[:20],
        "peak_mb": _peak_mb(), "threads": threads,
        "lines": text.count("\n"),
    }  # fmt: skip
    print(json.dumps(result), flush=True)
    os._exit(0)


def _echo() -> dict[str, Any]:
    return {"key": "cmd:echo ok", "kind": "cmd", "target": "echo ok", "timeout_s": 5, "argv": ["echo", "ok"]}


if __name__ == "__main__":
    _main(*sys.argv[1:])
