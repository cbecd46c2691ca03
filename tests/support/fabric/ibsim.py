"""A simulated InfiniBand fabric with the real tools: ibsim, opensm and infiniband-diags, without hardware or root.

::

    with IbSim(fat_tree(32)) as fabric:
        fabric.run("ibnetdiscover")                 # as from the first HCA
        fabric.console('Unlink "S-0c42a10300000000"[3]')
        evidence = fabric.sweep()                   # with preflight's own collector and probes

Each fabric has a unique name (``IBSIM_SOCKNAME``), so several can run at the same time. umad2sim writes ``./sys-PID``
into the current directory, so each has a separate directory.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from preflight.evidence.document import Evidence, from_document
from preflight.parsers.infiniband import ibqueryerrors
from preflight.probes.probe import plan
from preflight.probes.sweep import SWEEP_CAP, sweep
from tests.support.stopwatch import Stopwatch

UMAD = Path(f"/usr/lib/{platform.machine()}-linux-gnu/umad2sim/libumad2sim.so")
#: Message of opensm after each successful sweep; it never appears on a port without a link.
_ROUTED, _ROUTED_WITHIN_S, _QUIET_S = "SUBNET UP", 5.0, 0.3
#: Number of attempts at a sweep that lost queries for no reason.
_SWEEPS = 6
TOOLS = ("ibnetdiscover", "iblinkinfo", "ibqueryerrors", "sminfo", "saquery")
PACKAGES = {"ibsim": "ibsim-utils", "opensm": "opensm", "ibnetdiscover": "infiniband-diags"}


def missing() -> str:
    """Name the packages that are not installed; empty if all are."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    lacking = [package for tool, package in PACKAGES.items() if shutil.which(tool, path=path) is None]
    return " ".join([*lacking, *([] if UMAD.exists() else ["libumad2sim0"])])


# --- topologies --------------------------------------------------------------------------------------

HOST, LEAF, SPINE = 0xB8CEF60300000000, 0x0C42A10300000000, 0x0C42A10300F00000


def hca(number: int) -> str:
    """Return ibsim's name for an HCA."""
    return f"H-{HOST + number * 16:016x}"


def leaf(number: int) -> str:
    """Return ibsim's name for a leaf switch."""
    return f"S-{LEAF + number * 256:016x}"


def spine(number: int) -> str:
    """Return ibsim's name for a spine switch."""
    return f"S-{SPINE + number * 256:016x}"


def fat_tree(hcas: int, *, down: int = 16, spines: int | None = None, up: int | None = None, ports: int = 40,
             speed: str = "HDR", rails: int = 1, slow: dict[tuple[str, int], str] | None = None,
             aggregation: bool = False, extra: int = 0) -> str:  # fmt: skip
    """Return a topology file of leaves and spines: ``down`` HCAs on each leaf, ``up`` links from it to each spine.

    ``slow`` gives ports of switches another speed ("4xEDR"); ``aggregation`` puts an aggregation node on the last port
    of each switch; ``extra`` HCAs with two ports, one of them unused, are on the first leaf after its uplinks.
    """
    leaves = max(1, -(-hcas // down))
    spines = (0 if leaves == 1 else max(2, min(down, leaves))) if spines is None else spines
    up = (max(1, down // spines) if spines else 0) if up is None else up
    cables: list[tuple[str, int, str, int]] = []
    for number in range(hcas):
        cables.append((leaf(number // down), number % down + 1, hca(number), 1))
    for one in range(leaves):
        for other in range(spines):
            for cable in range(up):
                cables.append((leaf(one), down + other * up + cable + 1, spine(other), one * up + cable + 1))
    for number in range(extra):
        cables.append((leaf(0), down + spines * up + number + 1, hca(hcas + number), 1))
    names = {hca(n): f"gpu{n // rails:03d} mlx5_{n % rails}" for n in range(hcas)}
    names |= {hca(hcas + n): f"storage{n:02d} mlx5_0" for n in range(extra)}
    names |= {leaf(n): f"leaf{n:02d}" for n in range(leaves)} | {spine(n): f"spine{n:02d}" for n in range(spines)}
    switches = [name for name in names if name.startswith("S-")]
    if aggregation:
        for name in switches:
            inside = f"H-{int(name[2:], 16) + 8:016x}"
            names[inside] = "Mellanox Technologies Aggregation Node"
            cables.append((name, ports, inside, 1))
    return _file(names, cables, ports, speed, slow or {})


def _file(names: dict[str, str], cables: Sequence[tuple[str, int, str, int]], ports: int, speed: str,
          slow: dict[tuple[str, int], str]) -> str:  # fmt: skip
    ends: dict[str, list[tuple[int, str, int]]] = {name: [] for name in names}
    for a, a_port, b, b_port in cables:
        ends[a].append((a_port, b, b_port))
        ends[b].append((b_port, a, a_port))
    lines = []
    for name, description in names.items():
        guid = name[2:].lstrip("0")
        if name.startswith("S-"):
            lines += ["vendid=0x2c9", "devid=0xd2f0", f"sysimgguid=0x{guid}", f"switchguid=0x{guid}({guid})"]
            lines.append(f'Switch\t{ports} "{name}"\t\t# "{description}" enhanced port 0 lid 0 lmc 0')
        else:
            chip = "cf09" if "Aggregation" in description else "1019" if "storage" in description else "101b"
            lines += ["vendid=0x2c9", f"devid=0x{chip}", f"sysimgguid=0x{guid}", f"caguid=0x{guid}"]
            lines.append(f'Ca\t{2 if "storage" in description else 1} "{name}"\t\t# "{description}"')
        for port, other, far in sorted(ends[name]):
            its = slow.get((name, port)) or slow.get((other, far)) or f"4x{speed}"
            own = f"({int(name[2:], 16) + port:x})" if name.startswith("H-") else ""
            end = f"({int(other[2:], 16) + far:x})" if other.startswith("H-") else ""
            lid = "lid 0 lmc 0 " if name.startswith("H-") else ""
            lines.append(f'[{port}]{own} \t"{other}"[{far}]{end}\t\t# {lid}"{names[other]}" lid 0 {its}')
        lines.append("")
    return "\n".join(lines) + "\n"


def _lost(found: Evidence) -> str:
    """Return why the counters of a sweep are incomplete; empty if they are complete."""
    for key in found.records:
        if key.startswith("cmd:ibqueryerrors"):
            raw = found.records[key]
            try:
                if raw.get("err") or ibqueryerrors.parse(str(raw.get("out", ""))).unanswered:
                    return f"queries were lost: {str(raw)[-2000:]}"
            except ValueError as error:
                return f"{error}: {str(raw)[-2000:]}"
    return ""


def _crashed(found: Evidence) -> str:
    """Return the tool that a signal ended: ibqueryerrors sometimes crashes if answers are lost."""
    return ", ".join(f"{key}: {raw}"[-2000:] for key, raw in found.records.items() if int(raw.get("rc") or 0) < 0)


# --- the simulator -----------------------------------------------------------------------------------


class IbSim:
    """ibsim with a fabric, and opensm on its first HCA unless ``opensm`` is False."""

    def __init__(self, topology: str, *, opensm: bool = True, timeout_s: float = 60) -> None:
        self._topology, self._opensm, self._timeout_s = topology, opensm, timeout_s
        self._processes: list[subprocess.Popen[str]] = []
        self.manager: subprocess.Popen[str] | None = None
        self._lossy = False
        self.first = next(line.split('"')[1] for line in topology.splitlines() if line.startswith("Ca"))

    def __enter__(self) -> IbSim:
        self.folder = Path(tempfile.mkdtemp(prefix="ibsim-"))
        self._socket = f"ibsim-{os.getpid()}-{self.folder.name}"
        (self.folder / "fabric.net").write_text(self._topology)
        try:
            self._log = self.folder / "ibsim.log"
            environment = dict(os.environ, IBSIM_SOCKNAME=self._socket)
            self._simulator = self._start(["ibsim", "-s", "fabric.net"], environment, self._log, "MaxMcastCap")
            if self._opensm:
                self.manager = self.start_manager()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in reversed(self._processes):
            self.stop(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self, process: subprocess.Popen[str]) -> None:
        """End a process of this fabric."""
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdin:
            process.stdin.close()

    def environment(self, host: str = "") -> dict[str, str]:
        """Return the environment of a tool on a host of this fabric."""
        return dict(
            os.environ, IBSIM_SOCKNAME=self._socket, LD_PRELOAD=str(UMAD), SIM_HOST=host or self.first,
            OSM_TMP_DIR=str(self.folder), OSM_CACHE_DIR=str(self.folder),
            PATH=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin",
        )  # fmt: skip

    def start_manager(self, host: str = "", options: str = "") -> subprocess.Popen[str]:
        """Start a subnet manager on a host; ``options`` are lines of its configuration file."""
        count = len(self._processes)
        configuration, log = self.folder / f"opensm{count}.conf", self.folder / f"opensm{count}.log"
        configuration.write_text(options)
        argv = ["opensm", "-f", "-", "-F", str(configuration)]  # "-f FILE" would suppress the expected line
        return self._start(argv, self.environment(host), log, f"{_ROUTED}|STANDBY state")

    def _start(self, argv: list[str], environment: dict[str, str], log: Path, ready: str) -> subprocess.Popen[str]:
        path = shutil.which(argv[0], path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or argv[0]
        with log.open("w") as stream:
            process = subprocess.Popen(
                [path, *argv[1:]], cwd=self.folder, env=environment, text=True, bufsize=1,
                stdin=subprocess.PIPE if argv[0] == "ibsim" else subprocess.DEVNULL, stdout=stream,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._processes.append(process)
        end = time.monotonic() + self._timeout_s
        while not any(word in log.read_text(errors="replace") for word in ready.split("|")):
            if process.poll() is not None:
                raise RuntimeError(f"{argv[0]} ended with {process.returncode}: {log.read_text()[-500:]}")
            if time.monotonic() > end:
                raise TimeoutError(f"{ready!r} is not in the output of {argv[0]}: {log.read_text()[-500:]}")
            time.sleep(0.02)
        return process

    def console(self, *lines: str) -> None:
        """Give ibsim commands and wait until the last one is done."""
        stdin = self._simulator.stdin
        assert stdin is not None
        for line in lines:
            before = self._log.stat().st_size
            stdin.write(f"{line}\n!\n")  # it prompts after each; "!" is a comment
            stdin.flush()
            end = time.monotonic() + self._timeout_s
            while self._log.stat().st_size == before:
                if time.monotonic() > end:
                    raise TimeoutError(f"ibsim does not answer {line!r}")
                time.sleep(0.005)
        time.sleep(0.05)
        self._lossy |= any(line.startswith("Error") for line in lines)
        if any("link" in line.lower() for line in lines):
            self._wait_for_routing()

    def _wait_for_routing(self) -> None:
        """Wait until the subnet manager has rerouted after a change of links: until then, queries by LID are lost."""
        manager, log = self.manager, self.folder / "opensm1.log"
        if manager is None or manager.poll() is not None:
            return
        before = log.read_text(errors="replace").count(_ROUTED)
        manager.send_signal(signal.SIGHUP)  # a complete sweep; one started by a trap may have begun too early
        size, all_of_it, quiet = -1, Stopwatch(), Stopwatch()
        while all_of_it.seconds < _ROUTED_WITHIN_S:
            text = log.read_text(errors="replace")
            if len(text) != size:
                size, quiet = len(text), Stopwatch()
            if text.count(_ROUTED) > before and quiet.seconds > _QUIET_S:
                return
            time.sleep(0.02)

    def run(self, command: str, host: str = "") -> subprocess.CompletedProcess[str]:
        """Run a tool on a host."""
        return subprocess.run(command.split(), cwd=self.folder, env=self.environment(host), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=self._timeout_s)  # fmt: skip

    def folder_of_tools(self, host: str = "") -> Path:
        """Return a directory of tools for the front of PATH; each uses this fabric as if it ran on a host."""
        folder = self.folder / f"bin-{host or self.first}"
        folder.mkdir(exist_ok=True)
        for tool in TOOLS:
            real = shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
            wrapper = folder / tool
            names = ("IBSIM_SOCKNAME", "LD_PRELOAD", "SIM_HOST")
            words = " ".join(f"{name}='{self.environment(host)[name]}'" for name in names)
            wrapper.write_text(f"#!/bin/sh\ncd '{self.folder}' && exec env {words} {real} \"$@\"\n")
            wrapper.chmod(0o755)
        return folder

    def sweep(self, node: str = "gpu000", at: str = "2026-11-21T03:00:00Z", host: str = "", device: str | None = None,
              window_s: float | None = None, meanwhile: Sequence[str] = ()) -> Evidence:  # fmt: skip
        """Query this fabric as --fabric does, with the real collector, from one of its hosts.

        ``meanwhile`` are console commands in the middle of the window. If a sweep lost queries although nothing in the
        fabric loses any, it is repeated with a message; the cause is unknown. A sweep in which a tool crashed is
        repeated as well.
        """
        for attempt in range(_SWEEPS):
            found = self._sweep(node, at, host, device, window_s, meanwhile)
            may_lose = self._lossy or meanwhile or self.manager is None or self.manager.poll() is not None
            wrong = _crashed(found) or (_lost(found) if not may_lose else "")
            if not wrong:
                return found
            print(f"sweep {attempt}: {wrong}\n{self._log.read_text()[-500:]}")
            time.sleep(0.5)
        return found

    def _sweep(self, node: str, at: str, host: str, device: str | None, window_s: float | None,
               meanwhile: Sequence[str]) -> Evidence:  # fmt: skip
        from preflight.transport.local.node import collect

        before = os.environ["PATH"]
        os.environ["PATH"] = f"{self.folder_of_tools(host)}:{before}"
        timer = threading.Timer((window_s or 0) / 2, self.console, meanwhile)
        try:
            if meanwhile:
                timer.start()
            probes = sweep(device, window=window_s is not None)
            request = plan(probes, node=node, deadline_s=60, output_cap=SWEEP_CAP, window_s=window_s)
            document = collect(request)
        finally:
            os.environ["PATH"] = before
            timer.cancel()
        return from_document(dict(document, collected_at=at), node)
