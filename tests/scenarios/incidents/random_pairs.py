"""Random pairs of planted faults of a node give the incidents that each fault gives alone.

``python -m tests.scenarios.incidents.random_pairs --pairs 1000`` takes a few minutes; the tests run a sample.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from tests.scenarios.incidents.combinations import NODE, PLANTED
from tests.support import whole_nodes
from tests.support.machines import Machine, hgx_h100
from tests.support.whole_nodes import CHECKS

SEED = 20

#: Faults that another fault hides: the check that reports the other one, or the name of a harmless change; the hidden
#: check; the reason.
HIDDEN = {
    ("counters.balance", "counters.traffic-class"): "a port without traffic has none in the wrong class",
    ("counters.visible", "counters.traffic-class"): "what is not counted is in no class",
    ("driver without ECN counters", "counters.congestion"): "what is not counted is not seen to be ignored",
    ("counters.visible", "counters.balance"): "what is not counted cannot be compared",
    ("NCCL_IB_DISABLE left over", "nccl.ib-hca"): "without RDMA, NCCL uses no HCA",
    ("numa.affinity", "numa.memory"): "for one rank, only the memory near its own GPU counts",
    ("numa.affinity", "counters.cpu"): "only the CPUs of the process are judged",
    ("rdma.registered", "roce.chain"): "a NIC without its driver has no port",
    ("rank bound near its GPU", "counters.cpu"): "only the CPUs of the process are judged",
    ("two rails in one subnet, ARP set", "rails.subnets"): "with those ARP settings, the rails do not collide",
    ("two rails in one subnet", "storage.network"): "the rail is no longer in the network of the storage",
    ("two rails in one subnet, ARP set", "storage.network"): "the rail is no longer in the network of the storage",
}

CHECKS_BY_ID = {check.id: check for check in CHECKS}

Report = Mapping[str, Any]


def problems(pairs: int, seed: int = SEED) -> Iterator[str]:
    """Yield the faults in this many pairs; a pair in which one fault undoes the other is replaced."""
    drawn = random.Random(seed)
    names = sorted(PLANTED)
    done = 0
    while done < pairs:
        first, second = drawn.sample(names, 2)
        machine = _planted(first, second)
        if machine != _planted(second, first):
            continue
        done += 1
        together = whole_nodes.report(machine, whole_nodes.site(NODE))
        for wrong in _differences((first, second), together):
            yield f"{first} + {second}: {wrong}"


def _planted(*names: str) -> Machine:
    machine = hgx_h100(NODE, roce=True)
    for name in names:
        machine = PLANTED[name](machine)
    return machine


@cache
def _alone(name: str) -> Report:
    return whole_nodes.report(_planted(name), whole_nodes.site(NODE))


def _causes(report: Report) -> dict[str, str]:
    """Return the incidents: fingerprint -> check of the cause."""
    return {entry["fingerprint"]: report["findings"][entry["findings"][0]]["check"] for entry in report["incidents"]}


def _differences(names: tuple[str, str], together: Report) -> Iterator[str]:
    first, second = map(_alone, names)
    alone, given = {**_causes(first), **_causes(second)}, _causes(together)
    both = set(_causes(first).values()) & set(_causes(second).values())  # one fact covers both parts
    for print_, check in given.items():
        if print_ not in alone and check not in both:
            yield f"{check} is new"
    for print_, check in alone.items():
        if print_ not in given and check not in both and not _is_explained(check, together, names):
            yield f"{check} is lost"


def _is_explained(check: str, report: Report, names: tuple[str, str]) -> bool:
    """Return whether declared relations lead from an incident's cause to the check, or the incident hides it."""
    causes = set(_causes(report).values())
    if any((cause, check) in HIDDEN for cause in causes.union(names)):
        return True
    reached, waiting = set[str](), list(causes)
    while waiting:
        relations = CHECKS_BY_ID[waiting.pop()].relations
        effects = {id for id in CHECKS_BY_ID for relation in relations if fnmatchcase(id, relation.effect)} - reached
        reached |= effects
        waiting += effects
    return check in reached


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the faults, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args(arguments)
    wrong = 0
    for problem in problems(options.pairs, options.seed):
        wrong += 1
        sys.stdout.write(f"{problem}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{options.pairs} pairs, {wrong} differences\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
