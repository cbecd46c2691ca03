"""Probes of the InfiniBand sweep, which run on one node."""

from __future__ import annotations

from preflight.probes.probe import Probe

#: Maximum output of one sweep probe, bytes: 10,000 links take 2 MB in `ibnetdiscover`, 5 MB in `iblinkinfo`.
SWEEP_CAP = 32_000_000


def sweep(device: str | None = None, *, window: bool = False) -> tuple[Probe, ...]:
    """Return the probes of the fabric sweep, most of which query every device.

    Those for subnet managers and services query only the subnet manager.
    """
    of = f" -C {device}" if device else ""
    managers = (f"saquery -s{of}", r"(?m)^\s*EndPortLid\.+([0-9]{1,5})\s*$")
    return (
        Probe("cmd", f"ibnetdiscover{of}", "switches, HCAs and the links between them", 120, "root"),
        Probe("cmd", f"iblinkinfo -l{of}", "state, width and speed of every port, and its capabilities", 120, "root"),
        Probe("cmd", f"ibqueryerrors{of}", "error counters of every port; they are not reset", 120, "root",
              twice=True),
        Probe("cmd", f"sminfo{of}", "the master subnet manager", needs="root"),
        Probe("cmd", f"sminfo{of} {{}}", "state (master or standby) of each subnet manager", needs="root",
              listed=managers),
        Probe("cmd", f"saquery SR{of}", "services of the subnet, the SHARP aggregation manager among them",
              needs="root"),
        *((Probe("cmd", f"ibqueryerrors --counters --switch{of}", "bytes that each port of a switch carried, with "
                 "--window", 120, "root", twice=True),) if window else ()),
    )  # fmt: skip
