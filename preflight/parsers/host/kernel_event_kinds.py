"""The kinds of kernel log events, and the patterns of their lines.

Every line of a kind contains one of its ``hints``, so a log without them is not searched for the pattern. The named
groups of a pattern are ``dev`` (the device), ``bus`` (its PCI address), ``n`` (a count or number) and ``who`` (process,
state or cause).
"""

from __future__ import annotations

import re
from functools import cached_property

from preflight._startup.lightclass import dataclass

#: Severities. A note alone is not a fault; other lines or events can make it one.
FATAL, ERROR, CORRECTED, NOTE = "fatal", "error", "corrected", "note"


@dataclass(frozen=True)
class Kind:
    """One of the patterns of a kind of event."""

    name: str
    severity: str
    hints: tuple[str, ...]
    expression: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The expression, compiled at first use, since most runs need only a few."""
        return re.compile(self.expression)


def _kind(name: str, severity: str, hints: str, pattern: str) -> Kind:
    return Kind(name, severity, tuple(hints.split("|")), pattern)


_PCI = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_DEVICE = rf"\b(?P<dev>{_PCI})(?: [\w.@-]{{1,32}})?: "
_BLOCK = r"(?P<dev>[\w!-]{1,32})"
_LINK = r"[Ll]ink (?:is )?"

#: In order of precedence: within a kind, the first matching pattern is used.
KINDS = (
    # GPUs; the Xid parser reads their error codes
    _kind("gpu-fallen-off-bus", FATAL, "allen off the bus|ALLEN OFF THE BUS",
          r"(?i)(?:NVRM:.{0,400}|GPU has )fallen off the bus"),
    _kind("gpu-init-failed", FATAL, "RmInitAdapter failed|rm_init_adapter failed",
          "NVRM:.{0,400}(?:RmInitAdapter failed|rm_init_adapter failed)"),
    _kind("driver-mismatch", FATAL, "NVRM: API mismatch", "NVRM: API mismatch"),
    _kind("gpu-held", FATAL, "is already bound to",
          rf"NVRM: GPU (?P<dev>{_PCI}) is already bound to (?!nvidia)\w{{1,32}}"),
    _kind("gpu-window-invalid", FATAL, "PCI I/O region",
          "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid"),
    _kind("gpu-not-taken", FATAL, "NVRM: ",
          r"NVRM: (?:The NVIDIA (?:GPU driver )?probe routine (?:failed|was not called) for \d{1,3} device"
          r"|None of the NVIDIA (?:graphics |GPU )?(?:adapters|devices) were (?:initialized|probed))"),
    _kind("gpu-unpowered", FATAL, "necessary power cables",
          rf"NVRM: (?:GPU (?P<dev>{_PCI}): )?.{{0,80}}does not have the necessary power cables connected"),
    _kind("module-refused", ERROR, "disagrees about version of symbol|Unknown symbol|is rejected|Key was rejected",
          r"(?P<dev>[\w-]{1,56}): (?:disagrees about version of symbol|Unknown symbol) "
          r"|(?:PKCS#7 signature not signed with a trusted key|[Kk]ey was rejected by service"
          r"|Loading of .{0,60}(?:key|module|signature).{0,40} is rejected)"),
    _kind("peer-memory", ERROR, "peermem|nvidia_p2p_",  # an invalid context belongs to a terminated program
          r"(?i)(?:nvidia[-_]peermem\b|nvidia_p2p_\w{1,40})(?!.{0,120}invalid context).{0,120}(?:error|fail)"),
    _kind("gsp-rpc-errors", ERROR, "GSP|gsp",
          r"(?i)NVRM:(?: Rate limiting GSP RPC error prints|.{0,400}GSP.{0,400}(?:timeout|crash))"),
    # processors and memory
    _kind("panic", FATAL, "Kernel panic - not syncing", r"Kernel panic - not syncing: (?P<who>.{0,120})"),
    _kind("oops", FATAL, "BUG: |Oops|general protection fault|kernel BUG at|Unable to handle kernel",
          r"(?P<who>BUG: (?:unable to handle|kernel NULL pointer dereference).{0,80}|kernel BUG at .{1,80}"
          r"|Unable to handle kernel .{1,80}|Internal error: Oops.{0,60}|Oops: [0-9a-f]{4}.{0,60}"
          r"|general protection fault.{0,80}\[#\d)"),
    _kind("memory-error", ERROR, "EDAC ",
          r"EDAC (?P<bus>\w{1,16}): (?P<n>\d{1,7}) UE (?:.{0,120}? )?on (?P<dev>[^\s(]{1,80})"),
    _kind("memory-error", CORRECTED, "EDAC ",
          r"EDAC (?P<bus>\w{1,16}): (?P<n>\d{1,7}) CE (?:.{0,120}? )?on (?P<dev>[^\s(]{1,80})"),
    _kind("memory-error", ERROR, "EDAC ", r"EDAC (?P<dev>\w{1,16})\b.{0,80}\bUE\b"),
    _kind("memory-error", CORRECTED, "EDAC ", r"EDAC (?P<dev>\w{1,16})\b.{0,80}\bCE\b"),
    _kind("memory-error", ERROR, "Memory failure: 0x|hardware memory error",
          r"Memory failure: 0x[0-9a-f]{1,16}: |Uncorrected hardware memory error"),
    _kind("machine-check", FATAL, "Machine Check Exception",
          r"CPU ?(?P<dev>\d{1,5}): Machine Check Exception: (?P<who>.{0,80})"),
    _kind("machine-check", NOTE, "Machine Check",  # the severity is in the bank's state
          r"(?:CPU ?(?P<dev>\d{1,5}): )?Machine Check(?: Event)?: .{0,40}Bank (?P<n>\d{1,3}): (?P<who>[0-9a-f]{16})"),
    _kind("machine-check", FATAL, "Hardware Error]: System Fatal", r"\[Hardware Error\]: System Fatal error"),
    _kind("machine-check", ERROR, "Hardware Error]: ",
          r"\[Hardware Error\]: (?:Uncorrected|Deferred) ?(?:error|,)"),
    _kind("machine-check", CORRECTED, "Hardware Error]: Corrected", r"\[Hardware Error\]: Corrected error, no action"),
    _kind("machine-check-state", NOTE, "_STATUS[",  # completes the machine check on a line before (AMD)
          r"\[Hardware Error\]: CPU:(?P<dev>\d{1,5}) .{0,40}MC(?P<n>\d{1,3})_STATUS\[.{0,80}\]: "
          r"0x(?P<who>[0-9a-f]{16})"),
    _kind("machine-check-storm", CORRECTED, "CMCI storm detected", "CMCI storm detected"),
    _kind("machine-check", NOTE, "mce: [Hardware Error]|Machine check events logged",
          r"mce: \[Hardware Error\]|Machine check events logged"),
    _kind("hardware-error", NOTE, "event severity: ",  # the severity is in the text
          r"\{(?P<n>\d{1,9})\}\[Hardware Error\]: +event severity: (?P<who>\w{1,20})"),
    _kind("hardware-section", NOTE, "section_type: ",
          r"\{(?P<n>\d{1,9})\}\[Hardware Error\]: +section_type: (?P<who>[\w ,-]{1,60})"),
    _kind("previous-boot", ERROR, "BERT: ", "BERT: Error records from previous boot"),
    _kind("hardware-device", NOTE, "device_id: ",
          rf"\{{(?P<n>\d{{1,9}})\}}\[Hardware Error\]: +device_id: (?P<who>{_PCI})"),
    # PCIe
    _kind("pcie-aer", FATAL, "DPC: ", rf"{_DEVICE}(?:pciehp: )?DPC: (?P<who>containment event)"),
    _kind("pcie-aer", NOTE, "PCIe Bus Error: severity=",
          rf"(?:{_DEVICE})?(?:AER: )?PCIe Bus Error: severity=(?P<who>\w{{1,20}}(?:,? \([\w-]{{1,12}}\))?)"),
    _kind("pcie-aer", CORRECTED, "suppressed",
          r"(?:\bAER: |\baer_\w{1,40}: |pcie_do_\w{1,40}: )(?P<n>\d{1,9}) "
          r"(?:(?:[Cc]orrect(?:ed|able) )?(?:error )?messages?|callbacks|errors) (?P<who>suppressed)"),
    _kind("pcie-aer", NOTE, "AER: ",
          r"AER: (?:Multiple )?(?P<who>(?:Unc|C)orrect(?:ed|able)(?: \([\w-]{1,12}\))?) error (?:message )?received"
          rf"(?: from)?:?(?: (?P<dev>{_PCI}))?"),
    _kind("pcie-aer", NOTE, "AER: ", r"\bAER: .{0,200}(?:[Ee]rror|status)"),
    _kind("aer-not-recovered", ERROR, "recovery failed",
          rf"{_DEVICE}(?:AER: )?(?:device |subordinate device )?recovery failed"),
    _kind("slot-power-fault", ERROR, "pciehp: Slot(", r"pciehp: Slot\((?P<dev>[\w.-]{1,24})\): Power fault"),
    _kind("slot-removed", ERROR, "pciehp: Slot(",
          r"pciehp: Slot\((?P<dev>[\w.-]{1,24})\): (?:Link Down|Card not present)"),
    _kind("slot-added", NOTE, "pciehp: Slot(", r"pciehp: Slot\((?P<dev>[\w.-]{1,24})\): (?:Link Up|Card present)"),
    _kind("iommu-fault", ERROR, "DMAR: [|DMAR:[|event 0x10 received|Unhandled context fault",
          r"DMAR: ?\[(?:DMA|INTR-REMAP)[^\]]{0,40}\](?: Request device \[(?P<dev>[0-9a-f:.]{7,12})\])?"
          r"|arm-smmu\S{0,20} \S{1,40}: (?:event 0x10 received|Unhandled context fault)"),
    _kind("iommu-fault", ERROR, "AMD-Vi: Event logged [",  # the device is named in the event, or before it
          rf"(?:(?P<dev>{_PCI}): )?AMD-Vi: Event logged \[(?P<who>[A-Z_]{{1,40}})"
          r"(?: (?:device=)?(?P<bus>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]))?"),
    # NICs and their modules
    _kind("nic-link-down", NOTE, "ink down|ink Down|ink is down|ink is Down|Link DOWN",
          rf"(?:(?P<bus>{_PCI}) )?(?<![\w:.@-])(?!ata\d)(?P<dev>[\w.@-]{{1,32}}): (?:[\w.-]{{1,32}}: )?"
          rf"(?:(?:\w{{1,16}} )?NIC |Port: \d{{1,2}} )?{_LINK}(?:[Dd]own|DOWN)(?![\w-])"),
    _kind("nic-link-up", NOTE, "ink up|ink Up|ink is up|ink is Up|Link ACTIVE",
          rf"(?:(?P<bus>{_PCI}) )?(?<![\w:.@-])(?!ata\d)(?P<dev>[\w.@-]{{1,32}}): (?:[\w.-]{{1,32}}: )?"
          rf"(?:(?:\w{{1,16}} )?NIC |Port: \d{{1,2}} )?{_LINK}(?:[Uu]p|ACTIVE)(?![\w-])"),
    _kind("nic-link-down", NOTE, "mlx5_core ",
          rf"mlx5_core (?P<bus>{_PCI})?.{{0,200}}(?:[Ll]ink down|Port: \d{{1,2}} Link DOWN)"),
    _kind("nic-link-up", NOTE, "mlx5_core ",
          rf"mlx5_core (?P<bus>{_PCI})?.{{0,200}}(?:Link up|Port: \d{{1,2}} Link ACTIVE)"),
    _kind("nic-link-down", NOTE, "link status ",
          r"(?:\(slave (?P<dev>[\w.@-]{1,32})\): )?link status (?:definitely )?down"),
    _kind("nic-link-up", NOTE, "link status ",
          r"(?:\(slave (?P<dev>[\w.@-]{1,32})\): )?link status (?:definitely up|up again)"),
    _kind("nic-link-down", NOTE, "Cable unplugged", rf"mlx5_core (?P<bus>{_PCI})?.{{0,200}}Cable unplugged"),
    _kind("nic-link-up", NOTE, "Cable plugged", rf"mlx5_core (?P<bus>{_PCI})?.{{0,200}}Cable plugged"),
    _kind("nic-pcie-limited", NOTE, "available PCIe bandwidth, limited by",
          rf"(?:mlx5_core|mlx4_core|bnxt_en|ice|irdma|efa) (?P<dev>{_PCI})?.{{0,200}}available PCIe bandwidth,"
          r" limited by"),
    _kind("pcie-narrow", NOTE, "available PCIe bandwidth, limited by",
          rf"\b(?P<dev>{_PCI}): .{{0,80}}available PCIe bandwidth, limited by .{{0,24}} PCIe (?P<who>x\d{{1,2}} link at"
          r" .{4,20}\(capable of .{0,60}x\d{1,2}) link"),
    _kind("device-not-taken", ERROR, "failed with error",
          rf"\b(?:nvidia|mlx[45]_core|bnxt_en|ice|i40e|ena|efa|irdma|nvme|megaraid_sas|mpt3sas|hfi1)"
          rf"(?: (?P<dev>{_PCI}))?: probe (?:of (?P<bus>{_PCI}) |with driver \w{{1,20}} )?failed with error"
          r" -\d{1,3}"),
    _kind("device-not-taken", ERROR, "init_one failed|hca failed|initializing state",
          rf"mlx[45]_core (?P<dev>{_PCI}).{{0,80}}(?:init_one failed|enable hca failed"
          r"|in (?:pre-)?initializing state, aborting)"),
    _kind("nic-command-failed", ERROR, "failed, status |Failed to process command|Failed to submit command",
          rf"\b(?:mlx5_core|efa|ena) (?P<dev>{_PCI}).{{0,160}}(?:\) failed, status |[Ff]ailed to (?:process|submit)"
          r" command )(?!ok)"),
    _kind("nic-queue-error", ERROR, "rror cqe|rror CQE",
          rf"mlx5_core (?P<dev>{_PCI}).{{0,80}}[Ee]rror (?:cqe|CQE) on "),
    _kind("ipoib-multicast", ERROR, "multicast join failed",
          r"(?P<dev>ib[\w.]{1,24}): multicast join failed for "),
    _kind("module-hot", ERROR, "Temperature|temperature",
          rf"(?i)mlx5_core (?P<dev>{_PCI})?.{{0,300}}(?:High|Over) Temperature"),
    _kind("module-error", ERROR, "Port module event",
          rf"mlx5_core (?P<dev>{_PCI})?.{{0,60}}Port module event(?:\[error\]: |: (?=.{{0,24}}error))"
          r"(?P<who>.{0,80})"),
    _kind("slot-power", NOTE, "insufficient power on the PCIe slot",
          rf"(?:(?P<dev>{_PCI}).{{0,80}})?Detected insufficient power on the PCIe slot"),
    _kind("cpu-throttled", NOTE, "temperature",
          r"CPU(?P<dev>\d{1,5}): (?:Core|Package) temperature (?:is )?above threshold, cpu clock (?:is )?throttled"
          r"(?: \(total events = (?P<n>\d{1,12})\))?"),
    _kind("nic-firmware", FATAL, "mlx5_core ",
          rf"mlx5_core (?P<dev>{_PCI})?.{{0,80}}(?:device's health compromised|Fatal error \d{{1,5}} detected"
          r"|health recovery (?:flow )?(?:aborted|failed)|handling bad device here|mlx5_error_sw_reset: start)"),
    _kind("nic-firmware", FATAL, "Health issue observed",  # the kernel's severities emergency, alert and critical
          rf"mlx5_core (?P<dev>{_PCI})?.{{0,80}}Health issue observed, (?P<who>.{{1,60}}), severity\([0-2]\)"),
    _kind("nic-health", ERROR, "Health issue observed",  # overheating has the kind module-hot
          rf"mlx5_core (?P<dev>{_PCI})?.{{0,80}}"
          r"Health issue observed, (?![Hh]igh [Tt]emp)(?P<who>.{1,60}), severity\([3-7]\)"),
    _kind("nic-timeout", ERROR, "transmit queue|Will cause a leak of a command resource",
          rf"NETDEV WATCHDOG: (?:CPU: \d{{1,5}}: )?(?P<dev>[\w.@-]{{1,32}}) .{{0,60}}transmit queue \d{{1,5}} timed out"
          rf"|mlx5_core (?P<bus>{_PCI}).{{0,200}}Will cause a leak of a command resource"),
    _kind("nic-timeout", ERROR, "NETDEV WATCHDOG",
          r"(?P<dev>[\w.@-]{1,32}): NETDEV WATCHDOG: (?:CPU: \d{1,5}: )?transmit queue \d{1,5} timed out"),
    _kind("nic-timeout", ERROR, "TX timeout|rror (timeout: ",
          rf"(?:mlx5_core|mlx4_core|ice|i40e|bnxt_en) (?P<bus>{_PCI}).{{0,80}}(?:TX timeout (?:detected|on queue)"
          r"|Error \(timeout: \d{1,9}\) msg)"),
    # storage
    _kind("io-error", ERROR, ", sector ",
          rf"(?:I/O|critical (?:medium|target|nexus|space allocation)) error, dev {_BLOCK}, sector"
          r"(?!.{0,60}op 0x\w{1,4}:\((?:DISCARD|WRITE_ZEROES|SECURE_ERASE)\))"),
    _kind("io-error", ERROR, "Buffer I/O error", rf"Buffer I/O error on dev(?:ice)? {_BLOCK}"),
    _kind("io-error", ERROR, "(sct ", r"\b(?P<dev>nvme\d{1,4}(?:c\d{1,4})?n\d{1,4}): .{1,80}[Ee]rror \(sct 0x\w{1,4}"),
    _kind("io-error", ERROR, "Sense Key : ", r"\[(?P<dev>sd[a-z]{1,4})\].{0,40}Sense Key : (?:Medium|Hardware) Error"),
    _kind("io-error", ERROR, "to offline device",
          r"sd [\d:]{1,24} ?(?:\[(?P<dev>\w{1,8})\])?.{0,20}rejecting I/O to offline device"),
    _kind("io-error", ERROR, "device-mapper: ",
          r"device-mapper: (?:verity|integrity): (?P<dev>[\d:]{1,16}): .{0,60}(?:corrupted|Checksum failed)"),
    _kind("disk-command-failed", ERROR, "failed command: ",
          r"(?P<dev>ata\d{1,3}(?:\.\d{1,2})?): failed command: (?!PACKET|IDENTIFY)\w"),
    _kind("fs-data-lost", ERROR, "Delayed block allocation failed|Data will be lost|data will be lost",
          r"(?:EXT4-fs|XFS|F2FS-fs) \((?P<dev>[\w-]{1,32})\): .{0,160}"
          r"(?:Delayed block allocation failed|[Dd]ata will be lost)"),
    _kind("array-degraded", ERROR, "Disk failure on ",
          r"md/?[\w-]{0,16}:(?P<dev>md[\w-]{1,32}): Disk failure on (?!\S{1,32} detected, failing array)"
          r"(?P<who>[\w-]{1,32})"),
    _kind("array-back", NOTE, "recovery done", r"md: (?P<dev>md[\w-]{1,32}): recovery done"),
    _kind("array-failed", FATAL, "failing array|Cannot continue operation|not enough operational|been suspended",
          r"md/?[\w-]{0,16}:(?P<dev>md[\w-]{1,32}): (?:Disk failure on (?P<who>[\w-]{1,32}) detected, failing array"
          r"|Cannot continue operation|not enough operational)"
          r"|Pool '(?P<bus>[^'\n]{1,64})' has encountered an uncorrectable I/O failure"),
    _kind("nvme-lost", FATAL, "nvme ",
          r"nvme (?P<dev>nvme\d{1,4}): (?:Removing after probe failure|Disabling device after reset failure"
          r"|Device not ready; aborting|Identify Controller failed)"),
    _kind("nvme-timeout", ERROR, "nvme ",
          r"nvme (?P<dev>nvme\d{1,4}): (?:I/O|Admin|Abort).{0,120}timeout(?!, completion polled)"),
    _kind("nvme-polled", NOTE, "completion polled", r"nvme (?P<dev>nvme\d{1,4}): .{0,120}timeout, completion polled"),
    _kind("nvme-reset", ERROR, "nvme ",
          r"nvme (?P<dev>nvme\d{1,4}): (?:controller is down; will reset|resetting controller due to )"),
    _kind("disk-removable", NOTE, "SCSI removable disk", r"\[(?P<dev>sd[a-z]{1,4})\] Attached SCSI removable disk"),
    _kind("fs-mounted", NOTE, "mounted filesystem|Mounting V|first mount of filesystem",
          r"(?:EXT[234]-fs|XFS|BTRFS(?: info)?) \((?:device )?(?P<dev>[\w-]{1,32})"
          r"[^)\n]{0,20}\): (?:mounted filesystem|Mounting V\d|first mount)"),
    _kind("fs-writable", NOTE, "re-mounted ", r"EXT[234]-fs \((?P<dev>[\w-]{1,32})\): re-mounted .{0,80}\br/w"),
    _kind("fs-read-only", FATAL, "read-only|hutting down filesystem|has been shut down|orced readonly|forced readonly",
          r"(?:EXT[234]-fs|XFS|F2FS-fs|BTRFS(?: \w{1,10})?):? ?\((?:device )?(?P<dev>[\w-]{1,32})[^)\n]{0,20}\)"
          r".{0,160}(?:Remounting filesystem read-only|[Ss]hutting down filesystem|has been shut down|orced readonly)"),
    _kind("fs-error", ERROR, "F2FS-fs |FAT-fs ",
          r"(?:F2FS|FAT)-fs(?: error)? \((?:device )?(?P<dev>[\w-]{1,32})\): [Ee]rror\b"),
    _kind("fs-error", ERROR, "EXT4-fs error|EXT3-fs error|EXT2-fs error",
          r"EXT[234]-fs error \(device (?P<dev>[\w-]{1,32})\)"),
    _kind("fs-error-recorded", NOTE, "error count since last fsck|mounting fs with errors",
          r"EXT[234]-fs \((?P<dev>[\w-]{1,32})\): (?:error count since last fsck: (?P<n>\d{1,7})"
          r"|warning: mounting fs with errors)"),
    _kind("fs-error", ERROR, "XFS (",
          r"XFS \((?P<dev>[\w-]{1,32})\): .{0,80}(?:[Cc]orruption|metadata I/O error|[Ll]og I/O [Ee]rror)"),
    _kind("fs-error", ERROR, "BTRFS", r"BTRFS(?: error| critical|: error) ?\(device (?P<dev>[\w-]{1,32})"),
    _kind("fs-error", ERROR, "JBD2: |Aborting journal on device",
          r"(?:JBD2: .{0,80}error.{0,60}? on|Aborting journal on device) (?P<dev>[\w]{1,32})"),
    _kind("nfs-stalled", ERROR, "nfs: server ",
          r"nfs: server (?P<dev>\S{1,120}) not responding, (?P<who>still trying|timed out)"),
    _kind("nfs-failed", ERROR, "NFS: ",
          r"\bNFS: (?:(?:nfs4_\w{1,60}|state manager|v4 server).{0,120}(?:failed|error|returned a bad).{0,60})"),
    _kind("fs-client-failed", ERROR, "ceph: ",
          r"\b(?:lib)?(?P<dev>ceph): (?:.{0,24}\b(?:osd|mds|mon)\d{1,6}\b.{0,60}\b(?:hung|caps stale"
          r"|reconnect denied|down)\b)"),
    _kind("fs-client-failed", ERROR, "mmfs: ", r"\b(?P<dev>mmfs): \[[EX]\] (?:.{1,160})"),
    _kind("fs-client-failed", ERROR, "beegfs: ",
          r"\b(?P<dev>beegfs): .{0,80}(?:(?:Communication error|Receive timed out|[Cc]onnection-attempt-timeout"
          r"|[Cc]onnect.{0,40}failed).{0,80})"),
    _kind("fs-client-failed", ERROR, "weka",
          r"\b(?P<dev>weka\w{0,12})\b[^:\n]{0,24}: (?:.{0,120}(?:unreachable|suspended|not responding|timed out"
          r"|disconnected).{0,60})"),
    _kind("fs-client-failed", ERROR, "LNetError: ", r"(?P<dev>LNet)Error: .{0,120}[Tt]imed out (?:tx|RDMA)"),
    _kind("nfs-back", NOTE, "nfs: server ", r"nfs: server (?P<dev>\S{1,120}) OK\b"),
    _kind("lustre-evicted", ERROR, "was evicted by", r"This client was evicted by (?P<dev>[\w.-]{1,64})"),
    _kind("lustre-lost", ERROR, "Lustre: ",
          r"Lustre: (?:[\d:(). ]{0,60})?(?P<dev>[\w.-]{1,80}): Connection to .{1,120} was lost"),
    _kind("lustre-lost", ERROR, "LustreError: ",
          r"LustreError: (?:[\d:(). -]{0,60})?(?P<dev>[\w.-]{1,80}): operation \w{1,40} to node \S{1,80} failed:"
          r" rc = -(?:107|108|110|113|19|5)\b"),
    _kind("lustre-back", NOTE, "Lustre: ", r"Lustre: (?:[\d:(). ]{0,60})?(?P<dev>[\w.-]{1,80}): Connection restored"),
    _kind("oops", FATAL, "LBUG", r"LustreError: .{0,120}\bLBUG\b"),
    # network and interrupts
    _kind("bond-no-link", ERROR, "without any active interface",
          r"(?P<dev>[\w.-]{1,16}): (?:now )?running without any active interface"),
    _kind("conntrack-full", ERROR, "table full, dropping packet", r"nf_conntrack: .{0,40}table full, dropping packet"),
    _kind("neighbour-overflow", ERROR, "table overflow",
          r"(?P<dev>arp|ndisc)_cache: neighbou?r table overflow|[Nn]eighbou?r table overflow"),
    _kind("listen-overflow", NOTE, "SYN flooding", r"Possible SYN flooding on port (?P<dev>[\d.:\[\]a-f]{1,60}?)\. "),
    _kind("irq-lost", ERROR, "Disabling IRQ #", r"Disabling IRQ #(?P<dev>\d{1,5})"),
    # time and memory
    _kind("clock-unstable", ERROR, "as unstable", r"clocksource '?(?P<dev>\w{1,16})'? as unstable"),
    _kind("segfault", NOTE, "segfault at |general protection|trap invalid opcode|trap divide error",
          r"(?P<dev>[\w.+:/-]{1,64})\[\d{1,10}\]:? (?P<who>segfault at [0-9a-f]{1,16} .{0,160}"
          r"|general protection(?: fault)? ip.{0,160}|trap (?:invalid opcode|divide error) .{0,160})"),
    _kind("out-of-memory", NOTE, "emory cgroup out of memory",
          r"(?i)memory cgroup out of memory: Kill(?:ed)? process (?P<n>\d{1,10}) \((?P<dev>[^)\n]{1,64})\)"),
    _kind("out-of-memory", ERROR, "ut of memory: Kill",
          r"(?i)out of memory: Kill(?:ed)?(?: process (?P<n>\d{1,10}) \((?P<dev>[^)\n]{1,64})\))?"),
    _kind("out-of-memory", NOTE, "oom-kill:",
          r"oom-kill:(?:constraint=(?P<who>\w{1,40})"
          r"(?:,.{0,1000}?\btask=(?P<dev>[^,\n]{1,64}),pid=(?P<n>\d{1,10}))?)?"),
    _kind("hung-task", ERROR, " blocked ",
          r"INFO: task (?P<dev>.{1,64}) blocked (?:in I/O wait )?(?:on .{1,60} )?for more than (?P<n>\d{1,7}) seconds"),
    _kind("lockup", ERROR, "soft lockup",
          r"BUG: soft lockup - CPU#(?P<dev>\d{1,5}) stuck for (?P<n>\d{1,7})s! ?(?:\[(?P<who>[^\]\n]{1,64})\])?"),
    _kind("lockup", ERROR, "workqueue lockup",
          r"BUG: workqueue lockup - pool cpus=(?P<dev>[\d,-]{1,60}) .{0,80}stuck for (?P<n>\d{1,7})s"),
    _kind("lockup", ERROR, "hard LOCKUP", r"hard LOCKUP on cpu ?(?P<dev>\d{1,5})"),
    _kind("rcu-stall", ERROR, "detected stall|detected expedited stall",
          r"\brcu.{0,40}detected (?:expedited )?stalls?\b"),
)  # fmt: skip

#: Functions in a call trace that indicate a wait for a busy disk.
DISK = re.compile(r"\b(?:io_schedule|wbt_wait|rq_qos_wait|blk_mq_get_tag|balance_dirty_pages|jbd2_log_wait_commit"
                  r"|folio_wait_writeback|wait_on_page_writeback)\w{0,40}\+0x")  # fmt: skip
#: Functions in a call trace that indicate a wait for a network file system.
NETWORK_FS = re.compile(r"\b(?:nfs4?|rpc|ptlrpc|osc|mdc|ll|cl|ceph|fuse|gpfs|beegfs)_\w{1,60}\+0x")
