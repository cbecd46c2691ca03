"""Traffic on the RDMA ports of a node before a round.

If a port is in use, another job is running.
"""

from __future__ import annotations

import re
import shlex

from preflight.probes.probe import Probe

#: Fraction of a port's rate, in one direction, above which its traffic is that of a job.
MOST = 0.01

#: Number of octets per unit of the data counters (InfiniBand Architecture Specification, PortCounters).
_OCTETS = 4

#: Script that prints the counters of each port twice, one second apart, with the time; $1 is the folder of RDMA
#: devices.
_READ = """\
set -- "$1"/*/ports/*/counters/port_xmit_data
[ -r "$1" ] || exit 0
for turn in 1 2; do
  for file in "$@"; do
    port=${file%/counters/*}
    read -r rate unit rest <"$port/rate" && [ "$unit" = Gb/sec ] || continue
    read -r sent <"$file" && read -r received <"${file%xmit_data}rcv_data" && read -r now rest </proc/uptime &&
      echo "$port $rate $now $sent $received"
  done
  [ "$turn" = 2 ] || sleep 1
done
"""

#: A line of its output: device, port, rate in Gb/s, uptime of the node in seconds, sent, received.
_LINE = re.compile(
    r".{0,200}/([A-Za-z0-9_.-]{1,64})/ports/([0-9]{1,3}) ([0-9]{1,5}(?:\.[0-9])?) ([0-9]{1,12}\.[0-9]{2})"
    r" ([0-9]{1,20}) ([0-9]{1,20})"
)


def probe(folder: str = "/sys/class/infiniband") -> Probe:
    """Return the probe that reads the data counters of all RDMA ports twice."""
    return Probe("cmd", shlex.join(["sh", "-c", _READ, "sh", folder]), "traffic of the RDMA ports", 10.0)


def in_use(text: str) -> list[str]:
    """Return descriptions of the ports that are in use."""
    first: dict[tuple[str, str], tuple[float, int, int]] = {}
    busy = []
    for line in text.splitlines():
        if not (match := _LINE.fullmatch(line)):
            continue
        port, rate = (match[1], match[2]), float(match[3])
        reading = float(match[4]), int(match[5]), int(match[6])
        if port not in first:
            first[port] = reading
            continue
        began, *before = first[port]
        if (seconds := reading[0] - began) <= 0 or rate <= 0:
            continue
        octets = max(now - then for now, then in zip(reading[1:], before, strict=True)) * _OCTETS
        if (gbps := octets * 8 / 1e9 / seconds) > MOST * rate:
            busy.append(f"{port[0]} port {port[1]} carries {gbps:.1f} of {rate:g} Gb/s")
    return busy
