"""The exception tree of preflight.

Catch :class:`PreflightError` for everything that preflight raises on purpose::

    PreflightError
    ├── UsageError              a wrong command line or configuration; no node was contacted (exit status 2)
    │
    │   what was given
    ├── ClusterFileError        the cluster file has errors: file, line, key and fix of each
    ├── UnknownKey              no key of a node class has this name
    ├── UnknownCheck            the table [gate] selects no check (also a ValueError)
    ├── TargetError             the list of nodes cannot be resolved
    ├── EndpointError           a node lacks the device that a pair test needs
    ├── SourceError             a source of `preflight read` cannot be opened or unpacked
    ├── SnapshotError           one side of `preflight diff` cannot be read
    ├── ResumeError             an interrupted run cannot be continued
    ├── CampaignError           a campaign of `preflight bench` cannot be read or started
    ├── LearnError              the evidence contains no node to learn a cluster file from
    ├── JobConfigError          a file does not describe a job that `preflight plan` can read (also a ValueError)
    ├── LayoutError             a job or cluster cannot be planned
    ├── ConversionError         the configuration of another tool cannot be read
    ├── ShellSyntax             a line of that configuration is not one plain command (also a ValueError)
    ├── TargetSyntax            a target in that configuration cannot be evaluated (also a ValueError)
    │
    │   files and documents
    ├── UnreadableFile          not a regular file, or too long (also an OSError)
    ├── DocumentTooLarge        a JSON document would need too much memory (also a ValueError)
    ├── DocumentError           a file is not an evidence document (also a ValueError)
    ├── ArchiveError            a directory of evidence cannot be loaded
    ├── BundleError             a bundle cannot be read
    ├── ReportError             a stored report cannot be read
    ├── RedactionError          a file cannot be redacted
    ├── DuplicateKey            a JSON object has a key twice
    ├── NoNcclOutput            a log contains no line of NCCL (also a ValueError)
    ├── UnsafePickle            a pickle contains more than plain values; it is never unpickled (also a ValueError)
    ├── HistoryError            the history cannot be used
    │   └── HistoryLocked       another process has locked it
    │
    │   nodes
    ├── TransportError          a run cannot begin: a configuration or key file is unusable
    ├── NoAnswer                one node did not answer: the phase and the cause
    │   ├── ConnectionDropped   the host closed the connection early; a retry may succeed
    │   └── OpenSshRequired     the node needs an option that only the system's `ssh` has
    ├── ConnectionRejected      a busy node refused the connection; a retry may succeed
    │
    │   checks
    ├── EvidenceError           a record cannot answer; the check becomes *unknown*
    ├── DuplicateCheck          two checks have the same id
    ├── StaleRegistry           _startup/generated_checks.py does not match the check modules
    ├── MissingPackage          a package that the single-file build needs is not installed
    │
    │   the gate
    ├── StateDirError           the state directory is missing, unsafe or not writable
    ├── UnusableVerdict         a cached verdict is damaged, expired or for another node (also a ValueError)
    ├── ControllerError         scontrol failed, or the Slurm controller refused
    └── InstallError            `preflight slurm` wrote or removed nothing: the file and the fix

Each class is defined in the module that raises it and can be imported from here, which imports that module. Measured:
the import of a module with all of these classes takes 1.0 ms, that of this module 0.4 ms. A gate pays this cost before
every job and needs six of the classes.

The collector runs on nodes without the rest of preflight, under Python 3.6 and later. It cannot import this module, so
``preflight.collector.frame.FrameError`` and its subclasses (damaged, cut and missing frames) are outside the tree.
"""

from __future__ import annotations

#: The module of each class. A name is resolved on first use.
HOMES = {
    "ArchiveError": "preflight.archive.directory",
    "BundleError": "preflight.evidence.bundle",
    "ClusterFileError": "preflight.expectations.cluster_file",
    "ConnectionDropped": "preflight.transport.ssh.stream",
    "ConnectionRejected": "preflight.transport.child_transport",
    "ControllerError": "preflight.gate.slurm.scontrol",
    "ConversionError": "preflight.learn.conversion",
    "DocumentError": "preflight.evidence.document",
    "DocumentTooLarge": "preflight.evidence.json_limits",
    "DuplicateCheck": "preflight.checks",
    "DuplicateKey": "preflight.redact.json_rewriter",
    "EndpointError": "preflight.pair.endpoints",
    "EvidenceError": "preflight.evidence.document",
    "HistoryError": "preflight.history.store",
    "HistoryLocked": "preflight.history.store",
    "InstallError": "preflight.gate.slurm.installation",
    "JobConfigError": "preflight.parsers.job_config.settings",
    "LayoutError": "preflight.layout.job",
    "LearnError": "preflight.learn",
    "MissingPackage": "preflight.cli.zipapp",
    "NoAnswer": "preflight.transport.errors",
    "NoNcclOutput": "preflight.parsers.nccl_log.reader",
    "OpenSshRequired": "preflight.transport.errors",
    "RedactionError": "preflight.redact.files",
    "ReportError": "preflight.reports.stored",
    "ResumeError": "preflight.collect.journal",
    "CampaignError": "preflight.campaign.folder",
    "ShellSyntax": "preflight.parsers.host.nhc_config",
    "SnapshotError": "preflight.diff.snapshot",
    "SourceError": "preflight.recognition.input_sources",
    "StaleRegistry": "preflight.checks._registry.lazy",
    "StateDirError": "preflight.gate.state_dir",
    "TargetError": "preflight.collect.targets",
    "TargetSyntax": "preflight.learn.conversion.targets",
    "TransportError": "preflight.transport.errors",
    "UnknownCheck": "preflight.gate.configuration",
    "UnknownKey": "preflight.lint.explain",
    "UnreadableFile": "preflight.evidence.safe_read",
    "UnsafePickle": "preflight.parsers.torch.safe_pickle",
    "UnusableVerdict": "preflight.gate.verdict",
    "UsageError": "preflight.terminal",
}


class PreflightError(Exception):
    """Base class of preflight's exceptions; the text names the fault and the fix."""


def __getattr__(name: str) -> type[PreflightError]:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: type[PreflightError] = getattr(import_module(HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])
