"""Checks of a campaign's nodes before its rounds, and their cleanup at its end."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from preflight.bench.campaign import CampaignPlan
from preflight.bench.port_readings import NodeReading
from preflight.campaign import port_counters, port_traffic
from preflight.campaign.command_lines import MARK
from preflight.collect.fleet import collect
from preflight.collect.options import CollectOptions
from preflight.collect.request import CollectRequest
from preflight.evidence.document import Evidence, EvidenceError
from preflight.probes.probe import Probe

#: Time limits in seconds for collecting from all nodes, and for the sweep of this host.
_LOOK_S, _HERE_S = 30.0, 20.0

#: Maximum number of processes or ports in the reason why a node is left out.
_MOST_LISTED = 3

_BUSY = Probe("cmd", "nvidia-smi --query-compute-apps=pid,name --format=csv,noheader", "processes on the GPUs", 10.0)
_TRAFFIC = port_traffic.probe()
_GPUS = Probe("cmd", "nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader", "the GPUs", 10.0)

#: Script that prints the path of the program $1 if it exists.
_PROGRAM = 'command -v "$1"'

#: Script that lists and kills the processes of the campaign $1, which started at $2. It then removes newer session
#: folders of Open MPI without a process, which killed launchers and daemons left behind.
_SWEEP = """\
seen=
for turn in 1 2 3; do
  found=$(grep -lsxz "$0=$1" /proc/[0-9]*/environ | grep -v "^/proc/$$/")
  for entry in $found; do
    pid=${entry#/proc/}; pid=${pid%/environ}
    case " $seen " in
      *" $pid "*) ;;
      *) seen="$seen $pid"; tr "\\\\0" " " <"/proc/$pid/cmdline" | cut -c1-100; echo;;
    esac
    kill -KILL "$pid"
  done
  [ -n "$found" ] || break
  sleep 0.2
done
age=$(($(date +%s) - $2))
for session in "${TMPDIR:-/tmp}"/ompi.*."$(id -u)"/*; do
  [ -O "$session" ] && [ ! -L "$session" ] || continue
  [ $(($(date +%s) - $(stat -c %Y "$session"))) -le "$age" ] || continue
  case $session in
    */pid.*[0-9]) [ ! -d "/proc/${session##*/pid.}" ] || continue;;
    */jf.*[0-9])
      family=${session##*/jf.}
      grep -qsz "/jf.$family/" /proc/[0-9]*/environ && continue
      grep -qsz "$((family * 65536))" /proc/[0-9]*/cmdline && continue;;
    *) continue;;
  esac
  rm -rf -- "$session"; rmdir -- "${session%/*}" 2>/dev/null
done
true
"""


@dataclass(frozen=True)
class NodeState:
    """The reason to leave a node out (empty if usable), and its number of GPUs.

    The number is None if unknown.
    """

    why: str = ""
    gpus: int | None = None
    evidence: Evidence | None = None  # contains the counters of its ports


def look(plan: CampaignPlan, nodes: Sequence[str]) -> dict[str, NodeState]:
    """Return the state of nodes: whether each answers and is idle.

    Raises KeyboardInterrupt if the collection is interrupted.
    """
    program = Probe("cmd", shlex.join(["sh", "-c", _PROGRAM, "sh", plan.binary]), "the benchmark", 10.0)
    states = {}
    for evidence in _collected(plan, nodes, [_BUSY, _GPUS, _TRAFFIC, program, *port_counters.port_probes()]):
        if (evidence.no_answer or {}).get("phase") == "interrupted":
            raise KeyboardInterrupt
        states[evidence.node] = NodeState(_why(evidence, program.key, plan), _gpus(evidence), evidence)
    return {node: states.get(node, NodeState("it could not be reached")) for node in nodes}


def read_ports(
    plan: CampaignPlan, number: int, states: Mapping[str, NodeState], nodes: Sequence[str]
) -> list[NodeReading]:
    """Return the port errors of nodes in a round; ``states`` were read before it."""
    after = {evidence.node: evidence for evidence in _collected(plan, nodes, port_counters.port_probes())}
    before = {node: state.evidence for node, state in states.items()}
    return [port_counters.reading(number, before.get(node), after[node]) for node in nodes if node in after]


def sweep(plan: CampaignPlan, nodes: Sequence[str], began: float) -> list[str]:
    """Kill the leftover processes of a campaign; return their descriptions.

    Nodes that could not be examined are also listed. ``began`` is the start of the campaign in seconds since 1970.
    """
    words = ["sh", "-c", _SWEEP, MARK, plan.id, str(int(began))]
    left = _sweep_here(words)
    probe = Probe("cmd", shlex.join(words), "leftover processes", 20.0)
    for evidence in _collected(plan, nodes, [probe]):
        if evidence.no_answer is not None:
            left.append(f"{evidence.node}: not searched: {evidence.no_answer.get('reason', 'no answer')}"[:300])
            continue
        try:
            record = evidence.record(probe.key)
        except EvidenceError as error:
            left.append(f"{evidence.node}: not searched: {error}"[:300])
            continue
        if not record.ok:
            left.append(f"{evidence.node}: not searched: {record.describe()}"[:300])
        left += [f"{evidence.node}: killed the process {line.strip()}"[:300]
                 for line in record.out.splitlines() if line.strip()]  # fmt: skip
    return left


def _collected(plan: CampaignPlan, nodes: Sequence[str], probes: Sequence[Probe]) -> Sequence[Evidence]:
    if not nodes:
        return ()
    via = "srun" if plan.via == "srun" else "auto"
    config = Path(plan.ssh_config) if plan.ssh_config else None
    options = CollectOptions(deadline_s=_LOOK_S, via=via, ssh_config=config, connect_timeout_s=5.0, job=plan.job)
    return collect(CollectRequest(tuple(nodes), probes, options)).evidences


def _why(evidence: Evidence, program: str, plan: CampaignPlan) -> str:
    """Return the reason to leave a node out; empty if it is usable."""
    if evidence.no_answer is not None:
        return f"no answer: {evidence.no_answer.get('reason', '')}"[:300]
    try:
        record = evidence.record(program)
    except EvidenceError as error:
        return error.why[:300]
    if not record.ok or not record.out.strip():
        return f"the program {plan.binary} does not exist"
    with contextlib.suppress(EvidenceError):
        busy = evidence.record(_BUSY.key)
        lines = [line.strip() for line in busy.out.splitlines() if line.strip()[:1].isdigit()] if busy.ok else []
        if lines:
            return f"its GPUs are in use (process {'; process '.join(lines[:_MOST_LISTED])})"[:300]
    with contextlib.suppress(EvidenceError):
        traffic = evidence.record(_TRAFFIC.key)
        if traffic.ok and (ports := port_traffic.in_use(traffic.out)):
            return f"its RDMA ports are in use ({'; '.join(ports[:_MOST_LISTED])})"[:300]
    return ""


def _gpus(evidence: Evidence) -> int | None:
    try:
        record = evidence.record(_GPUS.key)
    except EvidenceError:
        return None
    return len(record.out.split()) or None if record.ok else None


def _sweep_here(words: Sequence[str]) -> list[str]:
    """Sweep this host in the same way as the nodes."""
    try:
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_HERE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"this host: not searched: {error}"[:300]]
    return [f"this host: killed the process {line.strip()}"[:300]
            for line in ran.stdout.decode("utf-8", "replace").splitlines() if line.strip()]  # fmt: skip
