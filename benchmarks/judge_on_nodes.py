"""A fleet that judges itself: ``python -m benchmarks.judge_on_nodes --nodes 10000``.

``check --via srun --judge-on-nodes`` runs against a fake ``srun``, which prints the answers of nodes that were judged
before, in srun's form. The nodes are those of ``judge_scale``; beyond ``--distinct``, healthy ones are repeated with
other names and identifiers. The benchmark measures the CPU time of the controller without that of the fake tools, the
memory (PSS) of all its processes, the bytes that it receives, and the wall time. With ``--central``, the same nodes
send their evidence instead, and are judged by the controller.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.judge_scale import _below
from preflight.collector import frame
from preflight.evidence.document import read, to_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import load
from preflight.expectations.own_class import own_class
from preflight.judge import on_node
from preflight.judge.code_files import archive, code_hash
from preflight.nodeset import fold
from preflight.transport.slurm import line_protocol
from tests.support import planted_fleet


def main() -> None:
    """Make the answers, run the controller, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--distinct", type=int, default=300, help="nodes that are made and judged one by one")
    parser.add_argument("--folder", type=Path, help="keep the answers and the report here, and use what is there")
    parser.add_argument("--central", action="store_true", help="send evidence; the controller judges it")
    parser.add_argument("--play", nargs=2, metavar=("STREAM", "FIGURES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.play:
        _play(Path(options.play[0]), Path(options.play[1]))
        return
    folder = options.folder or Path(tempfile.mkdtemp(prefix="judge-on-nodes-"))
    try:
        _make(folder, min(options.nodes, options.distinct))
        _run(folder, options.nodes, options.central)
    finally:
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)


def _make(folder: Path, count: int) -> None:
    """Write the evidence and the answers of the distinct nodes."""
    answers = folder / "answers"
    if answers.exists():
        return
    expected = planted_fleet.write(folder / "evidence", count)
    (folder / "cluster.toml").write_text(planted_fleet.CLUSTER)
    (folder / "planted.json").write_text(json.dumps(sorted(expected)))
    answers.mkdir()
    began = time.monotonic()
    with ProcessPoolExecutor() as pool:
        paths = sorted((folder / "evidence").glob("*.json"))
        for _ in pool.map(partial(_judge_itself, answers, load(folder / "cluster.toml")), paths, chunksize=8):
            pass
    print(f"{count} nodes judged themselves: {time.monotonic() - began:.0f} s here, on all processors")


def _judge_itself(folder: Path, expectations: Cluster, path: Path) -> None:
    evidence = read(path)
    wanted = {"expectations": own_class(expectations, evidence.node), "complete": False, "windowed": False}
    text = on_node.document(to_document(evidence), wanted)
    assert text is not None
    (folder / path.name).write_text(text)


def _run(folder: Path, count: int, central: bool) -> None:
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    stream = folder / f"{'central' if central else 'judged'}-{count}"
    sent = _write_stream(stream, folder, count, central)
    play = [sys.executable, "-m", "benchmarks.judge_on_nodes", "--play", str(stream), str(folder / "played.json")]
    for name in ("srun", "scancel", "sinfo", "squeue", "sbcast"):
        does = f"exec {' '.join(play)}" if name == "srun" else ""
        (tools / name).write_text(f"#!/bin/sh\n{does}\n")
        (tools / name).chmod(0o755)
    report = folder / "report.json"
    hosts = folder / "hosts"
    hosts.write_text(fold(name for name, _ in _nodes(folder, count)))
    command = [
        sys.executable, "-m", "preflight", "check", "--via", "srun", "--hostfile", str(hosts), "-q",
        "--cluster", str(folder / "cluster.toml"), "--json", str(report), "--deadline", "3000",
        *([] if central else ["--judge-on-nodes"]),
    ]  # fmt: skip
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": os.getcwd()}
    before, began = _children_s(), time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    peaks, over = [0], threading.Event()
    sampler = threading.Thread(target=_sample, args=(process.pid, peaks, over))
    sampler.start()
    status = process.wait()
    wall_s = time.monotonic() - began
    over.set()
    sampler.join()
    cpu_s = _children_s() - before - json.loads((folder / "played.json").read_text())["cpu_s"]
    stream.unlink()
    document = json.loads(report.read_bytes())
    run = document["run"]
    print(f"exit status {status}; {len(document['nodes'])} nodes, judged on nodes: {run.get('judged_on_nodes', 0)}, "
          f"here: {json.dumps(run.get('judged_here', []))[:200]}; {len(document['incidents'])} incidents")  # fmt: skip
    print(f"wall {wall_s:.0f} s; controller {1000 * cpu_s / count:.2f} ms CPU a node, {max(peaks) / 2**20:.0f} MiB at "
          f"most; received {sent / count / 1000:.1f} kB a node, in all {sent / 1e6:.0f} MB; "
          f"archive {len(archive()) / 1e6:.1f} MB to each node, through Slurm's tree")  # fmt: skip


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _sample(pid: int, peaks: list[int], over: threading.Event) -> None:
    """Sample the controller's memory, without the fake tools, five times a second."""
    while not over.wait(0.2):
        total = 0
        for process in [pid, *_below(pid)]:
            try:
                if b"--play" not in Path(f"/proc/{process}/cmdline").read_bytes():
                    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
                    total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
            except OSError:
                continue
        peaks.append(total)


# --- the fake srun -------------------------------------------------------------------------------------


def _nodes(folder: Path, count: int) -> list[tuple[str, Path]]:
    """Return the name and the answer of each node; healthy ones repeat, with names that sort last."""
    answers = sorted((folder / "answers").glob("*.json"))
    planted = set(json.loads((folder / "planted.json").read_text()))
    healthy = [path for path in answers if path.stem not in planted]
    made = [(path.stem, path) for path in answers[:count]]
    while len(made) < count:
        number = len(made)
        made.append((f"more{number:05}", healthy[number % len(healthy)]))
    return made


def _write_stream(stream: Path, folder: Path, count: int, central: bool) -> int:
    """Write what srun prints for all nodes; return its size in bytes."""
    with stream.open("wb") as out:
        for task, (name, path) in enumerate(_nodes(folder, count)):
            document: dict[str, Any] = json.loads((folder / "evidence" / path.name if central else path).read_text())
            document["node"] = name
            if not central:
                document["verdict"]["code"] = code_hash()
                if name != path.stem:
                    _rename(document["verdict"]["values"], name)
            out.writelines(_lines(task, name, frame.pack(document)))
        return out.tell()


def _play(stream: Path, figures: Path) -> None:
    """Print a stream; record the CPU time of doing so."""
    with stream.open("rb") as source:
        shutil.copyfileobj(source, sys.stdout.buffer, 1 << 16)
    sys.stdout.buffer.flush()
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures.write_text(json.dumps({"cpu_s": used.ru_utime + used.ru_stime}))


def _rename(values: dict[str, str], name: str) -> None:
    """Make the identifiers of a repeated node unique."""
    text, why = json.loads(values["identifiers"])
    lines = [f"{line}-{name}" if line else line for line in (text or "").split("\n")]
    values["identifiers"] = json.dumps(["\n".join(lines), why])


def _lines(task: int, name: str, packed: bytes) -> list[bytes]:
    """Return the lines of one node, as its collector writes them and srun labels them."""
    space: dict[str, Any] = {}
    exec(line_protocol._BOOT.rpartition("sys.stdout =")[0], space)
    lines = [b"PREFLIGHT-READY 50858480\n"]
    writer = space["Lines"]()
    writer.node, writer.put = name, lambda line: lines.append(line.encode())
    writer.write(packed)
    return [b"%d: %s" % (task, line) for line in lines]


if __name__ == "__main__":
    main()
