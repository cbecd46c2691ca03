"""Shell script of a campaign's rounds, which runs without preflight.

It is for sites where preflight may not launch jobs. The script writes the same folder as ``preflight bench``: plan,
journal and outputs. Therefore, ``preflight judge`` explains its results, and
``preflight bench --resume DIR --print sh`` prints the next rounds.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from preflight.bench import campaign
from preflight.bench.campaign import CampaignPlan, PlannedRound
from preflight.bench.observation import RunEnd
from preflight.campaign import command_lines
from preflight.campaign.command_lines import DAEMON_S, WATCH_S
from preflight.nodeset import fold_for_slurm

#: Forms of the script; MPIJOB is for the launcher pod of a ``manifest``.
SH, SBATCH, MPIJOB = "sh", "sbatch", "mpijob"

#: File in a worker pod with the name of its node, and the ssh configuration that the launcher pod writes.
NODE_FILE, POD_SSH_CONFIG = "/tmp/preflight-node", "/tmp/preflight-ssh-config"

#: Start of the script in a launcher pod. It makes nodes reachable by their names, through the pods that run on them,
#: since the MPI operator's list of hosts has the names of pods. When the script ends, it prints the folder, because the
#: files of a pod are lost with it.
_PODS = r"""
hostfile=${OMPI_MCA_orte_default_hostfile:-/etc/mpi/hostfile}
unset OMPI_MCA_orte_default_hostfile
deliver() {
  tar -C "${dir%/*}" -cz "${dir##*/}" | base64 | tr -d '\n' | sed 's/^/campaign: /'
  echo
}
trap deliver EXIT
name='^[A-Za-z0-9_][A-Za-z0-9_.-]*$'
common='  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  ConnectTimeout 10'
printf 'Include /etc/ssh/ssh_config\nHost *\n%s\n' "$common" >@SSH_CONFIG@
cut -d ' ' -f 1 "$hostfile" | grep "$name" | while read -r pod; do
  node=$(ssh -F @SSH_CONFIG@ "$pod" cat @NODE_FILE@ </dev/null | grep "$name") || continue
  printf 'Host %s\n  HostName %s\n' "$node" "$pod"
done >"$scratch/hosts"
cat "$scratch/hosts" >>@SSH_CONFIG@
for node in @NODES@; do
  grep -qFx "Host $node" "$scratch/hosts" || { echo "$node: no worker pod runs on it" >&2; finish nodes; exit 2; }
done
began=$(date +%s)
""".replace("@NODE_FILE@", NODE_FILE).replace("@SSH_CONFIG@", POD_SSH_CONFIG)

#: Functions of the script. ``run NUMBER ROUND RUN GROUP COMMAND…`` launches one run and records it. A journal line is
#: appended with one write, so the lines of parallel runs do not mix.
_FUNCTIONS = r"""
line() { printf '%s\n' "$1" >>"$dir/journal.jsonl"; }
now() { date -u +%Y-%m-%dT%H:%M:%SZ; }
run() {
  n=$1 head="\"n\":$1,\"round\":$2,\"run\":$3,\"group\":$4"; shift 4
  head="{\"schema\":\"preflight.bench.launch/1\",$head"
  line "$head,\"state\":\"started\",\"at\":\"$(now)\"}"
  cut= begin=$(date +%s)
  mkdir "$scratch/$n"
  TMPDIR=$scratch/$n timeout -k 5 "$watch" "$@" </dev/null >"$dir/out/$(printf %04d "$n").txt" 2>&1 &
  child=$!
  trap 'cut=1; kill "$child"' TERM
  wait "$child"; status=$?
  [ -z "$cut" ] || wait "$child"
  seconds=$(($(date +%s) - begin))
  rm -rf "$scratch/$n"
  why= outcome=ok
  if [ -n "$cut" ]; then outcome=cut why="the script was ended"
  elif [ "$status" = 124 ] || [ "$status" = 137 ] && [ "$seconds" -ge "$limit" ]; then
    outcome=timeout why="no end within $limit s"
  elif [ "$status" != 0 ]; then outcome=failed why="its launcher exited with status $status"
  fi
  ended="\"status\":\"$outcome\",\"exit\":$status,\"seconds\":$seconds,\"why\":\"$why\""
  line "$head,\"state\":\"ended\",\"at\":\"$(now)\",$ended}"
}
finish() {
  rm -rf "$scratch"
  line "{\"schema\":\"preflight.bench.end/1\",\"why\":\"$1\",\"left_behind\":[],\"at\":\"$(now)\"}"
  echo "$dir: judge it with: preflight judge $dir" >&2
}
start() { run "$@" & pids="$pids $!"; }
await() { wait; pids=; }
in_time() { [ $(($(date +%s) - began)) -lt "$budget" ]; }
pids= began=$(date +%s)
trap 'trap "" HUP INT TERM; kill $pids 2>/dev/null; wait; finish interrupted; exit 130' HUP INT TERM
"""


@dataclass(frozen=True)
class ScriptRounds:
    """The rounds of a script, and the state of the campaign's folder."""

    rounds: Sequence[PlannedRound]
    first_launch: int  # number of the first launch
    recorded: int = 0  # number of rounds in the journal already; of these, only open runs are launched
    open_runs: Sequence[int] = ()  # indexes of open runs in the last recorded round
    folder: str = ""  # folder of a resumed campaign; empty for a new one
    journal: Sequence[str] = ()  # lines of a resumed campaign's journal, for a launcher pod, which lacks the folder


def script(plan: CampaignPlan, form: str, rounds: ScriptRounds, rails: Sequence[str]) -> str:
    """Return the script in one of the forms (SH, SBATCH, MPIJOB)."""
    if form == MPIJOB:
        rounds, journal = replace(rounds, folder=""), rounds.journal
    else:
        journal = ()
    runs = sum(len(made.runs) for made in rounds.rounds)
    parts = ["#!/bin/sh\n", *(_directives(plan, rounds) if form == SBATCH else ()), *_head(plan, rounds, runs)]
    parts.append(_FUNCTIONS)
    if form == MPIJOB:
        parts += [f"line {_word(line)}\n" for line in journal]
        parts.append(_PODS.replace("@NODES@", " ".join(plan.nodes)))
    number = rounds.first_launch
    for made in rounds.rounds:
        resumed = made.number <= rounds.recorded
        places = list(rounds.open_runs) if resumed else list(range(len(made.runs)))
        parts.append(f"\n# round {made.number}, {made.purpose}\n")
        parts.append("in_time || { finish budget; exit 3; }\n")
        if not resumed:
            parts.append(f"line {_word(json.dumps(campaign.round_document(made), separators=(',', ':')))}\n")
        for begin in range(0, len(places), plan.at_once):
            for place in places[begin : begin + plan.at_once]:
                parts.append(_run(plan, made, place, number, rails))
                number += 1
            parts.append("await\n")
    parts.append("\nfinish script\n")
    return "".join(parts)


def _run(plan: CampaignPlan, made: PlannedRound, place: int, number: int, rails: Sequence[str]) -> str:
    ends: tuple[RunEnd, ...] = made.runs[place]
    command = command_lines.command(plan, ends, rails, {}, number, made.iterations)
    shown = {name: value for name, value in command.environment.items() if name != "TMPDIR"}
    group = json.dumps([end.node for end in ends], separators=(",", ":"))
    words = ["env", *(f"{name}={value}" for name, value in sorted(shown.items())), *command.argv]
    return f"start {number} {made.number} {place} {_word(group)} {shlex.join(words)}\n"


def _head(plan: CampaignPlan, rounds: ScriptRounds, runs: int) -> Iterator[str]:
    limit = math.ceil(plan.run_limit_s)
    yield (
        f"# Rounds of preflight bench, campaign {plan.id}: {runs} runs between {len(plan.nodes)} nodes, "
        f"at most {plan.at_once} at a time.\n"
        "# It loads the nodes and their network; no other job may run on them. Then: preflight judge DIR\n"
        "set -u\n"
    )
    if rounds.folder:
        yield (
            f"dir=${{1:-{shlex.quote(rounds.folder)}}}\n"
            f'grep -qs \'"id": "{plan.id}"\' "$dir/plan.json" || {{ echo "$dir: contains another campaign" >&2; '
            "exit 2; }\n"
        )
    else:
        document = json.dumps(campaign.plan_document(plan), indent=1)
        yield (
            f"dir=${{1:-preflight-bench-{plan.id}}}\n"
            '[ ! -e "$dir/plan.json" ] || { echo "$dir: already contains a campaign" >&2; exit 2; }\n'
            'mkdir -p "$dir/out" || exit 2\n'
            f"printf '%s\\n' {_word(document)} >\"$dir/plan.json\" || exit 2\n"
        )
    yield (
        'scratch=$(mktemp -d "${TMPDIR:-/tmp}/preflight-bench.XXXXXXXX") || exit 2\n'
        f"limit={limit} watch={limit + WATCH_S} budget={math.ceil(plan.budget_s)}\n"
    )


def _directives(plan: CampaignPlan, rounds: ScriptRounds) -> Iterator[str]:
    longest = math.ceil(plan.run_limit_s) + WATCH_S + DAEMON_S
    chunks = sum(math.ceil(len(made.runs) / plan.at_once) for made in rounds.rounds)
    minutes = math.ceil(min(chunks * longest, plan.budget_s + longest) / 60) + 1
    yield f"#SBATCH --job-name=preflight-bench-{plan.id}\n"
    yield f"#SBATCH --nodes={len(plan.nodes)} --nodelist={fold_for_slurm(plan.nodes)}\n"
    yield f"#SBATCH --exclusive --time={minutes}\n"


def _word(text: str) -> str:
    return shlex.quote(text)
