"""Rules of the NCCL linter, each with fixtures that violate it and fixtures that do not.

The rules are from the NCCL user guide, its source and operators' experience: settings that make a job fail or slow
(critical, high), have a needless cost (medium), have no effect (low), or contradict each other.
"""

from __future__ import annotations

_LEFT, _IFNAME, _HCA = "nccl.left-over-disables/", "nccl.socket-ifname/", "nccl.ib-hca/"
_VALUES, _CLASH, _PINNED = "nccl.variable-values/", "nccl.contradictions/", "nccl.pinned-choices/"
_FIT, _GID, _RANKS, _FILES = "nccl.fabric-fit/", "nccl.gid-index/", "fleet.ranks-agree/", "nccl.named-files/"
_DEBUG, _NAMES, _VERSION = "nccl.debug-output/", "nccl.unknown-variables/", "nccl.variable-version/"

#: Rule -> (fixtures that violate it, fixtures that do not).
RULES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # critical
    "NCCL_IB_DISABLE=1 where RDMA devices are": (
        (_LEFT + "ib-disable-in-environment", _LEFT + "ib-disable-in-etc-file"), (_LEFT + "ib-disable-without-rdma",),
    ),
    "NCCL_NET=Socket on an RDMA node": ((_LEFT + "net-socket-lower-case",), (_LEFT + "good-settings",)),
    "NCCL_P2P_DISABLE=1 on an NVLink node": (
        (_LEFT + "p2p-disable-nvlink",), (_LEFT + "p2p-disable-two-does-nothing",),
    ),
    "NCCL_P2P_LEVEL=LOC": ((_LEFT + "p2p-level-loc",), (_LEFT + "p2p-level-lower-case-is-ignored",)),
    "an interface that is not here": (
        (_IFNAME + "misspelt", _IFNAME + "exact-name-in-file-not-here"), (_IFNAME + "one-of-a-list-is-here",),
    ),
    "an HCA that is not here": ((_HCA + "one-of-two-is-missing",), (_HCA + "worked-02-exact",)),
    "loopback or docker0 as the interface": ((_IFNAME + "loopback-only",), (_IFNAME + "prefix",)),
    "a GID index that is empty, RoCE v1 or link-local": (
        (_GID + "empty-row", _GID + "roce-v1", _GID + "link-local", _GID + "moved-on-one-port"),
        (_GID + "good-in-a-pod", _GID + "on-infiniband"),
    ),
    "settings that must agree and differ between ranks": (
        (_RANKS + "algorithm-differs", _RANKS + "one-odd", _RANKS + "ranks-of-one-node-differ"),
        (_RANKS + "same", _RANKS + "default-is-the-same-as-unset"),
    ),
    "different NCCL between ranks": (("fleet.nccl-equal/one-odd",), ("fleet.nccl-equal/equal",)),
    "LL128 forced without NVLink": ((_PINNED + "ll128-without-nvlink",), (_PINNED + "nothing-pinned",)),
    # high
    "NCCL_SHM_DISABLE=1": ((_LEFT + "shm-disable",), (_LEFT + "nothing-set",)),
    "NCCL_NET_GDR_LEVEL=LOC or NCCL_NET_GDR_READ=0": (
        (_LEFT + "gdr-level-zero", _LEFT + "gdr-read-zero"), (_LEFT + "good-settings",),
    ),
    "NCCL_DMABUF_ENABLE=0 without a peer-memory module": (
        (_LEFT + "dmabuf-off-without-peer-memory",), (_LEFT + "dmabuf-off-with-peer-memory",),
    ),
    "NCCL_NVLS_ENABLE=0 on Hopper with NVSwitches": ((_LEFT + "nvls-off",), (_LEFT + "nvls-off-without-nvswitch",)),
    "NCCL_MNNVL_ENABLE=0 on an NVL72": ((_LEFT + "mnnvl-disable",), (_LEFT + "mnnvl-disable-one-node",)),
    "NCCL_IB_PCI_RELAXED_ORDERING=0 in a virtual machine": (
        ("pcie.relaxed-ordering/virtual-machine-switched-off-in-nccl",), ("pcie.relaxed-ordering/intel",),
    ),
    "NCCL_PXN_DISABLE=1 on rails": ((_LEFT + "pxn-off",), (_LEFT + "pxn-off-without-nvlink",)),
    "algorithm or protocol pinned": ((_PINNED + "algorithm", _PINNED + "protocol"), (_PINNED + "nothing-pinned",)),
    "NCCL_TOPO_FILE is missing or of another machine": (
        (_FILES + "topology-is-missing", _FILES + "topology-of-another-machine"), (_FILES + "topology-of-this-node",),
    ),
    "more than 16 threads or 64 sockets": (
        ("nccl.socket-threads/product-above-64", "nccl.socket-threads/too-many-threads"),
        ("nccl.socket-threads/sixty-four",),
    ),
    "an IB time-out below 18, of 0, or of 32 and more": (
        (_VALUES + "time-out-too-short", _VALUES + "time-out-of-zero", _VALUES + "time-out-for-ever"),
        (_VALUES + "good",),
    ),
    "fewer retries than 7": ((_VALUES + "fewer-retries",), (_VALUES + "repeats-the-default",)),
    "an HCA prefix that takes in more": ((_HCA + "worked-01-prefix-takes-in-more",), (_HCA + "worked-02-exact",)),
    "fewer HCAs than near the GPUs": (
        (_HCA + "compute-port-left-out", _HCA + "near-port-left-out"), (_HCA + "roles-agree", _HCA + "near-ports"),
    ),
    "storage or management HCA": (
        (_HCA + "storage-port-taken-in", _HCA + "bond-among-others"), (_HCA + "roles-agree",),
    ),
    "InfiniBand and RoCE at once": ((_HCA + "infiniband-and-roce",), (_HCA + "roles-agree",)),
    # medium
    "NCCL_DEBUG=TRACE, or every collective logged": (
        (_DEBUG + "trace", _DEBUG + "all-subsystems", _DEBUG + "calls"), (_DEBUG + "subsystems-without-a-level",),
    ),
    "NCCL_DEBUG=INFO on more than 1000 ranks": ((_DEBUG + "info-on-2048-ranks",), (_DEBUG + "info",)),
    "one log file for all ranks": ((_DEBUG + "one-file-for-all-ranks",), (_DEBUG + "warn",)),
    "a GID index where NCCL finds it": ((_GID + "good-but-needless",), (_GID + "unset",)),
    "numbers of channels, deprecated and forced": (
        (_VERSION + "deprecated", _PINNED + "channels-on-nvswitches"), (_PINNED + "channels-without-nvswitch",),
    ),
    "*_NCHANNELS beside *_CTAS": ((_CLASH + "channels-and-ctas",), (_CLASH + "in-harmony",)),
    "smallest above largest": ((_CLASH + "smallest-above-largest",), (_CLASH + "in-harmony",)),
    "a buffer that is small or no power of two": (
        (_VALUES + "odd-buffer", _VALUES + "small-buffer"), (_VALUES + "good",),
    ),
    "NCCL_NTHREADS other than 64, 128, 256, 512": ((_VALUES + "out-of-range",), (_VALUES + "good",)),
    "NCCL_LAUNCH_MODE=GROUP": ((_PINNED + "launch-mode",), (_PINNED + "nothing-pinned",)),
    "NCCL_IGNORE_CPU_AFFINITY against the mask": (
        ("numa.nccl-affinity/leaves-the-mask",), ("numa.nccl-affinity/unset",),
    ),
    "NCCL_CROSS_NIC=1 on rails apart": ((_FIT + "cross-nic-on-rails-apart",), (_FIT + "cross-nic-on-infiniband",)),
    "NCCL_COLLNET_ENABLE=1 in vain": (
        ("nccl.sharp/asked-for-on-roce", "nccl.sharp/asked-for-on-one-node"),
        ("nccl.sharp/asked-for-with-its-plug-in",),
    ),
    "queue pairs without ECMP, split messages": (
        (_FIT + "queue-pairs-on-infiniband", _FIT + "messages-cut-over-queue-pairs"), (_FIT + "queue-pairs-on-roce",),
    ),
    "a traffic class that misses the protected priority": (
        ("roce.chain/traffic-class-zero", _FIT + "traffic-class-that-says-congested"),
        (_FIT + "traffic-class-of-the-protected-priority", _FIT + "traffic-class-without-ecn-bits"),
    ),
    "a plug-in's file that is missing": (
        (_FILES + "plug-in-file-missing", _FILES + "plug-in-file-missing-and-insisted-on"),
        (_FILES + "plug-in-by-name-is-here", _FILES + "no-plug-in-wanted"),
    ),
    # low
    "removed and renamed names": (
        (_VERSION + "removed", _VERSION + "renamed", _VERSION + "removed-without-a-successor"),
        (_VERSION + "removed-later-is-read-by-this-one", _VERSION + "all-read"),
    ),
    "names that this NCCL does not read yet": ((_VERSION + "newer-than-the-installed-one",), (_VERSION + "all-read",)),
    "unknown names": (
        (_NAMES + "misspelt", _NAMES + "words-in-another-order", _NAMES + "nothing-near", _NAMES + "lower-case"),
        (_NAMES + "all-known", _NAMES + "names-of-plug-ins"),
    ),
    "names that never existed": ((_NAMES + "invented-names",), (_NAMES + "all-known",)),
    "PyTorch's names without TORCH_": (
        ("nccl.pytorch-variables/old-name-from-2.2-on", "nccl.pytorch-variables/another-old-name"),
        ("nccl.pytorch-variables/old-name-before-2.2", "nccl.pytorch-variables/on-under-the-new-name"),
    ),
    "empty values": ((_VALUES + "empty",), (_VALUES + "good",)),
    "blanks, quotes, carriage returns": (
        (_VALUES + "blank-at-the-end", _VALUES + "quotes", _VALUES + "carriage-return"), (_VALUES + "good",),
    ),
    "words and units for numbers": (
        (_VALUES + "word-for-a-number", _VALUES + "unit", _VALUES + "octal", _VALUES + "overflow"), (_VALUES + "good",),
    ),
    "words that NCCL does not know": (
        (_VALUES + "unknown-algorithm-ends-the-job", _VALUES + "level-in-lower-case", _VALUES + "unknown-debug-level"),
        (_VALUES + "good", _VALUES + "algorithms-for-each-function"),
    ),
    "a value that is the default is only mentioned": ((_VALUES + "fewer-retries",), (_VALUES + "repeats-the-default",)),
    # contradictions
    "NCCL_IB_DISABLE=1 with NCCL_IB_*": ((_CLASH + "ib-disabled-with-ib-settings",), (_CLASH + "in-harmony",)),
    "NCCL_NET=IB with NCCL_IB_DISABLE=1": (
        (_CLASH + "only-network-switched-off", _CLASH + "environment-against-file"), (_CLASH + "in-harmony",),
    ),
    "NCCL_NET=Socket with NCCL_COLLNET_ENABLE=1": ((_CLASH + "socket-with-collnet",), (_CLASH + "in-harmony",)),
    "NVLS without cuMem": ((_CLASH + "nvls-without-cumem",), (_CLASH + "in-harmony",)),
    "MNNVL without cuMem": ((_CLASH + "mnnvl-without-cumem",), (_CLASH + "in-harmony",)),
    "NCCL_ALGO=NVLS with NVLS off": (
        (_CLASH + "nvls-algorithm-with-nvls-off", _CLASH + "nvls-among-others-with-nvls-off"), (_CLASH + "in-harmony",),
    ),
    "GPUDirect everywhere, and no path to GPU memory": ((_CLASH + "no-way-to-gpu-memory",), (_CLASH + "in-harmony",)),
    "NCCL_P2P_DISABLE=1 with NCCL_P2P_LEVEL": ((_CLASH + "p2p-off-with-a-level",), (_CLASH + "in-harmony",)),
    "neither peer-to-peer nor shared memory": ((_CLASH + "p2p-and-shm-off",), (_CLASH + "in-harmony",)),
    "no plug-ins, and a plug-in's network": ((_CLASH + "plug-in-network-without-plug-ins",), (_CLASH + "in-harmony",)),
    "NCCL_OOB_NET_IFNAME without its switch": ((_CLASH + "oob-name-without-its-switch",), (_CLASH + "in-harmony",)),
    "several ranks on a GPU with NVLS": ((_CLASH + "several-ranks-and-nvls",), (_CLASH + "in-harmony",)),
}  # fmt: skip
