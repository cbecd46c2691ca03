"""Links that went down and came back, from the messages of NIC drivers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from preflight.checks.host.kernel_problem import Problem, Window, listed
from preflight.model import Status, times
from preflight.parsers.host.device_names import is_virtual
from preflight.parsers.host.kernel_events import KernelEvent

#: Minimum number of recoveries for which a link warns. A judgement call: one or two come from replugged cables or a
#: restarted switch; AzNHC uses 5 in a day, gpud 3 in half a day.
FLAPS = 3


#: Start of the message about a link that flapped.
FLAP = "the link of *"

#: Losses of a port that a fault of its link explains. Those from full buffers and pauses are not among them.
LOST_WITH_LINK = tuple(
    ("counters.loss", "part", "*", words)
    for words in (
        "*queue pairs failed*",
        "*the link went down*",
        "*acknowledgements timed out*",
        "*packets are lost b*",
    )
)


def flaps(kinds: Mapping[str, Sequence[KernelEvent]], window: Window) -> Iterator[Problem | str]:
    """Yield links that went down and came back, and notes on other changes.

    Changes during boot are left out. The interface, its RDMA device and the transceiver may all log the same change, so
    for each PCI function, only the source with the most recoveries counts.
    """
    seldom: list[str] = []
    for shown, events, back, rose in _changes(kinds, window):
        if len(back) >= FLAPS:
            yield Problem(Status.WARN, f"the link of {shown} went down and came back {len(back)} times"
                          f"{window.span(back)}", shown, "nic-link-down", tuple(back), _FIX)  # fmt: skip
        else:
            often = times(len(events))
            if later(events[-1], rose):
                seldom.append(f"{shown} {often}{window.when(events)}")
            else:
                yield Problem(Status.UNKNOWN, f"the link of {shown} went down {often} and stayed down", shown,
                              "nic-link-down", tuple(events), _SPARE)  # fmt: skip
    if seldom:
        yield f"links that went down and came back: {listed(seldom)}"


def repeated(
    kinds: Mapping[str, Sequence[KernelEvent]], window: Window, least: int = 2
) -> Iterator[tuple[str, Sequence[KernelEvent]]]:
    """Yield links that recovered ``least`` times or more, but fewer than FLAPS times."""
    for shown, _, back, _ in _changes(kinds, window):
        if least <= len(back) < FLAPS:
            yield shown, back


_SPARE = (
    "Run `preflight check` on the node, which knows the job's ports (rdma.port-state), or check "
    "whether the port is a spare."
)
_FIX = (
    "Reseat or replace the cable or module; check the peer's port: links that flap together share a switch. "
    "`mlxlink -d DEVICE -m -c -e` shows optical power and errors."
)


def _changes(
    kinds: Mapping[str, Sequence[KernelEvent]], window: Window
) -> Iterator[tuple[str, Sequence[KernelEvent], Sequence[KernelEvent], Sequence[KernelEvent]]]:
    """Yield each link that went down.

    Each item has the link's name, its down events, those with a recovery, and the up events of its port.
    """
    downs, ups = (_by_port(kinds.get(kind, ()), window) for kind in ("nic-link-down", "nic-link-up"))
    for port, names in downs.items():
        grouped = {name: _returned(events, ups.get(port, {})) for name, events in names.items()}
        name = max(grouped, key=lambda name: (len(grouped[name]), bool(name)))
        yield name or port, names[name], grouped[name], [up for held in ups.get(port, {}).values() for up in held]


def _by_port(events: Sequence[KernelEvent], window: Window) -> dict[str, dict[str, list[KernelEvent]]]:
    """Return the events of each port by source: port -> source -> events."""
    grouped: dict[str, dict[str, list[KernelEvent]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        if not is_virtual(event.device) and not window.booting(event):
            grouped[event.bus or event.device or "a NIC"][event.device].append(event)
    return grouped


def _returned(downs: Sequence[KernelEvent], ups: Mapping[str, Sequence[KernelEvent]]) -> list[KernelEvent]:
    """Return the down events after which the link came up before the next one."""
    rising = sorted(up.line for up in ups.get(downs[0].device, ()) or [up for held in ups.values() for up in held])
    grouped, place = [], 0
    for number, down in enumerate(downs):
        until = downs[number + 1].line if number + 1 < len(downs) else None
        while place < len(rising) and rising[place] < down.line:
            place += 1
        if place < len(rising) and (until is None or rising[place] < until):
            grouped.append(down)
    return grouped


def later(event: KernelEvent, others: Sequence[KernelEvent]) -> bool:
    """Return whether any of the other events was logged after an event."""
    return any(other.line > event.line for other in others)
