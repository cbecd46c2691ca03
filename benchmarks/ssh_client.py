"""The transport of preflight as a client of ``ssh_fanout``.

``python -m benchmarks.ssh_client trivial|collect FOLDER [OVERRIDE]``; it runs a trivial command, or the collector, on
many hosts. The folder contains ``hosts`` and ``ssh_config``. A named override of ``OVERRIDES`` is removed. This is a
separate program because the imports of ``ssh_fanout`` would count as start-up time.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

#: Override of paramiko -> class, attribute, and the original; None: paramiko's own.
OVERRIDES: dict[str, tuple[str, str, Callable[..., None] | None]] = {
    "no timer for the handshake": ("BoundedPackets", "start_handshake", None),
    "debug messages left unread": ("BoundedPackets", "read_message", None),
    "longest packet": ("BoundedPackets", "read_all", None),
    "disconnect message": ("InlineConnection", "_disconnect", lambda connection: None),
    "host's reason for a refused channel": ("InlineConnection", "_parse_channel_open_failure", None),
    "both names of curve25519": ("InlineConnection", "_kex_info", None),
}

#: The same for the import of paramiko, which precedes the classes.
IMPORT = "import without invoke and importlib.metadata"


def main(what: str, folder: Path, without: str = "") -> None:
    """Print ``ok`` for each host that answers, then the start-up time."""
    began_s = time.clock_gettime(time.CLOCK_BOOTTIME) - _age_s()
    if without == IMPORT:
        import paramiko  # noqa: F401
    from preflight.probes.probe import Probe
    from preflight.probes.probe import plan as make_plan
    from preflight.transport.ssh.paramiko_transport import SshOptions, SshTransport
    from preflight.transport.ssh.plain_connection import Script
    from preflight.transport.ssh.session import SshSession

    if without in OVERRIDES:
        from preflight.transport.ssh import _paramiko_tuning  # after paramiko, which is imported as in a run

        kind, name, instead = OVERRIDES[without]
        if instead is None:
            delattr(getattr(_paramiko_tuning, kind), name)
        else:
            setattr(getattr(_paramiko_tuning, kind), name, instead)
    hosts = (folder / "hosts").read_text(encoding="utf-8").split()
    text = folder / "text"
    least = text.stat().st_size // 2
    transport = SshTransport(SshOptions(folder / "ssh_config"), hosts)
    until = time.monotonic() + 300
    plan = make_plan([Probe("file", str(text), "")], node="", deadline_s=60)
    started = {"wall_s": time.clock_gettime(time.CLOCK_BOOTTIME) - began_s, "cpu_s": _own_cpu_s()}

    def trivial(host: str) -> bool:
        output = []

        def begin(session: SshSession) -> Script:
            channel = yield from session.start_command("echo ok")
            while session.active and not channel.eof_received:
                yield
            output.append(channel.recv(100))

        transport.carry_out(transport._configs[host], begin, until)
        return output == [b"ok\n"]

    def collect(host: str) -> bool:
        document = transport.collect(host, plan, until)
        return any(len(record.get("out", "")) > least for record in document["records"].values())

    with ThreadPoolExecutor(64) as pool:
        answered = sum(pool.map({"trivial": trivial, "collect": collect}[what], hosts))
    transport.close()
    print("ok\n" * answered + json.dumps(started), flush=True)
    os._exit(0)


def _age_s() -> float:
    """Return the age of this process in seconds."""
    ticks = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _own_cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
