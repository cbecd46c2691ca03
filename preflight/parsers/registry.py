"""Formats and their parsers: plain data, a mapping for each family of tools.

A name is that of `preflight read`'s kind; a parser is a module of this package with ``HINTS``, ``begins``, ``parse``,
``facts`` and ``summary`` (``parsed.OutputParser``). Order matters within a family: the surest form comes first.
"""

from __future__ import annotations

#: RDMA ports, NICs, PCIe and the network.
NETWORK = {
    "ibstat": "rdma.ibstat",
    "ibstatus": "rdma.ibstatus",
    "ibv_devinfo": "rdma.ibv_devinfo",
    "rdma link": "rdma.rdma_link",
    "ibdev2netdev": "rdma.ibdev2netdev",
    "show_gids": "rdma.show_gids",
    "hw_counters": "rdma.port_counters",
    "perfquery": "rdma.perfquery",
    "ethtool -S": "network.ethtool_statistics",
    "ethtool -a": "network.ethtool_pause",
    "ethtool -i": "network.ethtool_driver",
    "ethtool -m": "network.ethtool_module",
    "ethtool": "network.ethtool_link",
    "mlnx_qos": "qos.mlnx_qos",
    "dcb": "qos.dcb",
    "lspci": "pci.lspci",
    "network-status": "network.network_status",
}

FAMILIES = (NETWORK,)
