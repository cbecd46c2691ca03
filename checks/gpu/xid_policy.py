"""Policy table of Xids.

Meanings and first actions follow NVIDIA's Xid catalogue (https://docs.nvidia.com/deploy/xid-errors/) for Ampere and
newer. Where operators disagree on an error that an application can cause, the milder action applies. The
machine-readable action follows from the catalogue's first action: an application restart is ``fix-job``, a GPU reset
``reset``, a restart of the machine or virtual machine ``reboot``, and contacting support ``monitor``.
"""

from __future__ import annotations

import enum

from preflight._startup.lightclass import dataclass


class Act(str, enum.Enum):
    """Kind of action that an Xid requires."""

    OUT = "out"  # take the GPU or node out of service now
    RESET = "reset"  # reset or drain soon
    WARN = "warn"  # no documented action: investigate
    APPLICATION = "application"  # an application error first
    NOTE = "note"  # information
    READ = "read"  # the line's text decides


RESET = "Drain the GPU's jobs, then run `nvidia-smi -r -i N` (it ends all jobs on this GPU); reboot if that fails."
REBOOT = "Drain the node and reboot it; if the error returns, check power, heat and seating, then contact support."
REPLACE = "Drain the node and reset the GPU; replace it if the failure persists."
SUPPORT = "Drain the node at the next opportunity and send the line to the vendor's support."
NVLINK = (
    "Check both ends (`nvidia-smi nvlink -s`, `-e`) and reset all GPUs of the node; if the error "
    "returns, contact support."
)
CABLES = "Check the auxiliary power cables of the board."
VM = "Restart the virtual machine."
UPDATE = "Update the vGPU software of host and guest to compatible versions."
DRAIN = "Drain the node, and send the line to the vendor's support."
REMAP = (
    "`nvidia-smi -q -d ROW_REMAPPER,PAGE_RETIREMENT` shows whether a reset is pending; if so, reset the GPU at the "
    "next drain."
)
COUNTERS = "Watch the counters: `nvidia-smi -q -d ECC`, `nvidia-smi nvlink -e`; run `dcgmi diag -r 2` if they grow."
BEFORE = "Look for the Xid or program exit before it, which is the cause."


@dataclass(frozen=True)
class XidPolicy:
    """Policy for one Xid: meaning, severity, first step and action."""

    meaning: str
    act: Act
    fix: str = ""
    action: str = "none"  # one of ``preflight.model.ACTIONS``


#: Machine-readable action for each first step, and for acts without one; for ``Act.READ``, the line's text decides.
_ACTIONS = {RESET: "reset", REBOOT: "reboot", REPLACE: "reset", NVLINK: "reset", CABLES: "isolate", VM: "reboot",
            DRAIN: "isolate", UPDATE: "fix-site", SUPPORT: "monitor"}  # fmt: skip
_OF_ACT = {Act.OUT: "isolate", Act.RESET: "reset", Act.WARN: "monitor", Act.APPLICATION: "fix-job", Act.NOTE: "none"}


def _table(rows: tuple[tuple[str, str, Act, str], ...]) -> dict[int, XidPolicy]:
    found = {}
    for codes, meaning, act, fix in rows:
        policy = XidPolicy(meaning, act, fix, _ACTIONS.get(fix) or _OF_ACT.get(act, "monitor"))
        for part in codes.split(","):
            first, _, last = part.partition("-")
            for code in range(int(first), int(last or first) + 1):
                found[code] = policy
    return found


POLICY = _table((
    ("8,11,13,25,32,60,69", "engine, channel or class exception", Act.APPLICATION, ""),
    ("31", "memory page fault of an application", Act.APPLICATION, ""),
    ("14,37,38,44,66,67", "driver-internal event", Act.NOTE, BEFORE),
    ("39-41,70-72,75-77,85,126-135", "copy engine exception", Act.APPLICATION, ""),
    ("43", "an application's channel was stopped", Act.NOTE, BEFORE),
    ("45", "clean-up after an earlier error or a killed application", Act.NOTE, BEFORE),
    ("46", "GPU timeout", Act.RESET, RESET),
    ("48", "uncorrectable (double-bit) memory error", Act.OUT, RESET),
    ("54", "auxiliary power is not connected", Act.OUT, CABLES),
    ("1-7,9,10,12,15-24,26-30,33-36,42", "error marked unused in the catalogue", Act.WARN, SUPPORT),
    ("47,49-53,55-59,61,65,73,81,87,90,91", "error marked unused in the catalogue", Act.WARN, SUPPORT),
    ("111-118,122-125,138", "error marked unused in the catalogue", Act.WARN, SUPPORT),
    ("62", "internal micro-controller halt", Act.RESET, RESET),
    ("63", "a row remapping or page retirement was recorded", Act.NOTE, REMAP),
    ("64", "a row remapping or page retirement failed", Act.OUT, REPLACE),
    ("68,80,82-84,86,88,89,96-105,139", "video, JPEG or optical-flow engine exception", Act.APPLICATION, ""),
    ("142", "video engine exception", Act.APPLICATION, SUPPORT),
    ("74", "NVLink error", Act.READ, NVLINK),
    ("78", "vGPU start error", Act.APPLICATION, UPDATE),
    ("79", "GPU has fallen off the bus", Act.OUT, REBOOT),
    ("92", "high rate of single-bit errors", Act.NOTE, COUNTERS),
    ("93", "InfoROM wear", Act.NOTE, COUNTERS),
    ("94", "contained memory error", Act.APPLICATION, ""),
    ("95", "uncontained memory error", Act.OUT, RESET),
    ("109", "context switch timeout", Act.RESET, RESET),
    ("110", "security fault", Act.RESET, RESET),
    ("119", "GSP firmware does not answer", Act.OUT, RESET),
    ("120", "GSP firmware error", Act.OUT, RESET),
    ("121", "corrected error of the chip-to-chip link", Act.NOTE, COUNTERS),
    ("136", "link training failed", Act.RESET, RESET),
    ("106,107,152,153", "test message", Act.NOTE, ""),
    ("108,137", "NVLink access error of a peer", Act.NOTE, BEFORE),
    ("140", "unrecovered ECC error", Act.OUT, RESET),
    ("141", "fast-path error", Act.NOTE, COUNTERS),
    ("143", "GPU initialisation error", Act.OUT, RESET),
    ("144-146,149", "NVLink unit error", Act.READ, RESET),
    ("147,148", "NVLink unit event", Act.NOTE, COUNTERS),
    ("150", "NVLink unit error", Act.RESET, RESET),
    ("151", "key rotation error", Act.RESET, VM),
    ("154", "the driver changed its requested recovery action", Act.READ, ""),
    ("155", "NVLink error found by software", Act.RESET, RESET),
    ("156", "a resource was retired", Act.RESET, RESET),
    ("158", "fatal timeout", Act.OUT, RESET),
    ("157,160,161", "resource or channel retirement", Act.NOTE, COUNTERS),
    ("159", "unified-memory access error", Act.APPLICATION, ""),
    ("162,163", "power-smoothing event", Act.NOTE, ""),
    ("164,165", "the power-smoothing hardware is worn", Act.WARN, SUPPORT),
    ("167-169", "PCIe fatal timeout, reduced memory or SEC2 halt", Act.RESET, DRAIN),
    ("171,172", "uncorrectable memory error (detail of 48)", Act.OUT, RESET),
    ("166,170,173,175,176", "error without an action in the catalogue", Act.WARN, SUPPORT),
))  # fmt: skip

#: Policies by the recovery action that Xid 154 names after "to", in lower case.
RECOVERY = {
    "none": XidPolicy("the driver no longer requests recovery", Act.NOTE),
    "gpu reset required": XidPolicy("the driver requests a GPU reset", Act.OUT, RESET, "reset"),
    "drain and reset": XidPolicy("the driver requests a drain and reset of the GPU", Act.OUT, RESET, "reset"),
    "node reboot required": XidPolicy("the driver requests a reboot", Act.OUT, REBOOT, "reboot"),
    "drain p2p": XidPolicy("the driver requests the end of all peer-to-peer work", Act.OUT, RESET, "reset"),
    "recover imex domain": XidPolicy("the driver requests a recovery of the IMEX domain", Act.OUT,
                                  "Restart nvidia-imex on all nodes of the domain.", "fix-site"),
}  # fmt: skip
