"""The transport of a collection, selected by its options."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from preflight.collect.options import CollectOptions
from preflight.collect.request import CollectRequest
from preflight.nodeset import fold_for_slurm
from preflight.terminal import UsageError, progress
from preflight.transport.errors import TransportError
from preflight.transport.kubernetes.kubectl import KubectlTransport
from preflight.transport.slurm.srun import Srun
from preflight.transport.ssh.openssh import OpenSshTransport

if TYPE_CHECKING:
    from preflight.transport.child_transport import PipedTransport
    from preflight.transport.ssh.automatic import AutoTransport
    from preflight.transport.ssh.paramiko_transport import SshTransport


@contextmanager
def connection(request: CollectRequest) -> Iterator[AutoTransport | SshTransport | PipedTransport | Srun]:
    """Yield a transport to the nodes of a request; close it at the end.

    Closing also ends the processes on the nodes.
    """
    hosts, options = request.nodes, request.options
    transport: AutoTransport | SshTransport | PipedTransport | Srun
    try:
        if options.via == "srun":
            archive = request.judging.archive if request.judging else b""
            transport = Srun(options.job or os.environ.get("SLURM_JOB_ID"), fold_for_slurm, archive)
        elif options.via == "kubectl":
            transport = KubectlTransport(options.kubectl)
        elif options.via == "openssh":
            transport = OpenSshTransport(options.ssh_config, hosts, options.connect_timeout_s)
        else:
            with progress("reading the SSH configuration"):
                transport = _ssh(hosts, options)
    except TransportError as error:
        raise UsageError(str(error)) from None
    try:
        yield transport
    finally:
        transport.close()


def _ssh(hosts: Sequence[str], options: CollectOptions) -> AutoTransport | SshTransport | PipedTransport:
    """Return a transport over SSH with paramiko; ``auto`` uses ``ssh`` where needed.

    Raises TransportError.
    """
    try:
        # import-at-use: the single-file build has no paramiko
        from preflight.transport.ssh.paramiko_transport import SshOptions, SshTransport
    except ModuleNotFoundError as error:  # single-file build: paramiko's cryptography is compiled
        if options.via != "auto":
            raise UsageError(
                f"no SSH: this build does not include {error.name}; use --via openssh, or install gpu-preflight"
            ) from None

        every = OpenSshTransport(options.ssh_config, hosts, options.connect_timeout_s)
        every.through_openssh = dict.fromkeys(hosts, f"this build does not include {error.name}")
        return every

    # import-at-use: also needs paramiko
    from preflight.transport.ssh.automatic import AutoTransport

    kind = AutoTransport if options.via == "auto" else SshTransport
    return kind(SshOptions(options.ssh_config, connect_timeout_s=options.connect_timeout_s), hosts)
