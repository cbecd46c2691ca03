"""Fuzzer of all parsers, which also measures the growth of their run time: ``python -m tests.robustness.fuzz``.

With ``--minutes 10``, the first part draws examples like tests/robustness/test_parsers.py, in turns, until the time is
over; the second reads long texts of doubling size and compares the times. Any exception other than a refusal is printed
with its example; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.support import mutate, parser_registry
from tests.support.parser_registry import Parser

#: Characters of the long texts; the time of the longest is compared with that of the previous one.
SIZES = (50_000, 100_000, 200_000, 400_000)

#: Allowed ratio of times for twice the text: 2 is linear, 4 quadratic. Shorter times are noise, seconds.
MOST, NOISE_S = 3.0, 0.05

#: Examples of one parser in one turn.
TURN = 100


@dataclass
class ParserTally:
    """Results of one parser."""

    examples: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    def call(self, parser: Parser, argument: Any) -> None:
        """Read one example."""
        began = time.process_time()
        try:
            parser.call(argument)
        except parser.raises as error:
            self.refused += 1
            if not str(error) or (parser.foreign and len(str(error)) > 2000):
                self.fault(f"a refusal of {len(str(error))} characters: {str(error)[:100]}", argument)
        except Exception as error:
            self.fault(f"{type(error).__name__}: {str(error)[:200]}", argument)
        took = time.process_time() - began
        self.examples += 1
        self.seconds += took
        self.slowest_s = max(self.slowest_s, took)

    def fault(self, what: str, argument: Any) -> None:
        """Store the first examples of a fault."""
        if len(self.faults) < 3:
            self.faults.append(f"{what}\n      with {str(argument)[:300]!r}")


def turn(parser: Parser, tally: ParserTally, examples: int, number: int) -> None:
    """Draw examples of one parser."""
    strategy: st.SearchStrategy[Any]
    if parser in parser_registry.TEXT:
        strategy = mutate.texts(parser)
    elif parser in parser_registry.VALUE:
        strategy = mutate.values([json.loads(one) for one in parser.seeds])
    else:
        strategy = mutate.documents(parser)

    @seed(number)
    @settings(max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(strategy)
    def drive(argument: Any) -> None:
        tally.call(parser, argument)

    drive()


def seconds(parser: Parser, text: str, tries: int = 1) -> float:
    """Return the shortest of several times that a parser takes for a text."""
    times = []
    for _ in range(tries):
        began = time.process_time()
        with suppress(*parser.raises):
            parser.call(text)
        times.append(time.process_time() - began)
    return min(times)


def growth(parser: Parser) -> Iterator[tuple[str, list[float]]]:
    """Yield the times of each kind of long text at each size; stop growing a text that takes seconds."""
    for kinds in zip(*(mutate.long_texts(parser, size, points=3) for size in SIZES), strict=False):
        times: list[float] = []
        for _, text in kinds:
            times.append(seconds(parser, text))
            if times[-1] > 5:
                break
        if not_linear(times) and times[-1] < 5:
            times = [seconds(parser, text, tries=5) for _, text in kinds]
        yield kinds[0][0], times


def not_linear(times: list[float]) -> bool:
    """Return whether the longest text took too long compared with half its size."""
    return times[-1] > NOISE_S and (len(times) < len(SIZES) or times[-1] > MOST * times[-2])


def main() -> int:
    """Run both parts and print the table."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--only", default="", help="parsers whose name holds this")
    options.add_argument("--seed", type=int, default=random.randrange(10**6))
    options.add_argument("--no-growth", action="store_true", help="leave the second part out")
    given_options = options.parse_args()
    chosen = [parser for parser in parser_registry.ALL if given_options.only in parser.name]
    tallies = {parser.name: ParserTally() for parser in chosen}
    until = time.monotonic() + given_options.minutes * 60
    turns = 0
    while time.monotonic() < until:
        for parser in chosen:
            if time.monotonic() >= until:
                break
            turn(parser, tallies[parser.name], TURN if parser.name not in _SLOW else TURN // 4,
                 given_options.seed + turns)  # fmt: skip
            turns += 1
    print(f"seed {given_options.seed}, {turns} turns\n")
    print(f"{'parser':34} {'examples':>9} {'refused':>8} {'per s':>8} {'slowest ms':>11}")
    for name, tally in tallies.items():
        rate = tally.examples / tally.seconds if tally.seconds else 0
        print(f"{name:34} {tally.examples:9} {tally.refused:8} {rate:8.0f} {tally.slowest_s * 1000:11.1f}")
        for fault in tally.faults:
            print(f"    FAULT {fault}")
    total = sum(tally.examples for tally in tallies.values())
    faults = sum(len(tally.faults) for tally in tallies.values())
    print(f"\n{total} examples, {faults} kinds of fault")
    slow = 0 if given_options.no_growth else _growth([p for p in chosen if p in parser_registry.TEXT and p.foreign])
    return 1 if faults or slow else 0


_SLOW = {parser.name for parser in parser_registry.EVIDENCE} | {"gpu_xml.parse"}


def _growth(chosen: list[Parser]) -> int:
    print(f"\ntime for {', '.join(f'{size // 1000}' for size in SIZES)} thousand characters, worst kind of text, ms")
    slow = 0
    for parser in chosen:
        kinds = list(growth(parser))
        name, times = max(kinds, key=lambda kind: kind[1][-1])
        print(f"{parser.name:34} {' '.join(f'{1000 * one:8.1f}' for one in times)}  {name}")
        for name, times in kinds:
            if not_linear(times):
                slow += 1
                print(f"    NOT LINEAR {name}: {' '.join(f'{1000 * one:.1f}' for one in times)}")
    return slow


if __name__ == "__main__":
    sys.exit(main())
