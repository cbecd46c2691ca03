"""Hand-made report documents for the tests of the reports, without evidence or checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

RUN = {
    "at": "2026-03-01T03:12:09Z",
    "version": "0.1.0",
    "command": "preflight check --cluster cluster.toml",
    "seconds": 41.7,
    "cluster_file": "cluster.toml",
}
ORIGIN = "made by hand: no hardware was behind it"
CHECKS = (
    "gpu.count", "gpu.driver", "gpu.ecc", "topology.nvlink", "topology.nearest-nic", "rdma.device-count",
    "rdma.port-state", "rdma.port-rate", "rdma.active-mtu", "roce.chain", "nccl.socket-ifname",
    "nccl.left-over-disables", "numa.affinity", "host.memlock", "host.shm", "fleet.driver-equal",
)  # fmt: skip
HOSTILE = "<script>alert(1)</script>\"'`&\x1b[31mred\x1b[0m\u202egnp.exe\u2066\u200b\x00\x85\ud800\u2028end"

Findings = list[dict[str, Any]]


def gpu(number: int, bus: str, *, answers: bool = True, model: str = "NVIDIA H100 80GB HBM3") -> dict[str, Any]:
    address = f"0000:{bus}:00.0"
    return {
        "name": f"GPU{number}" if answers else address,
        "model": model if answers else "",
        "address": address,
        "answers": answers,
    }


def nic(number: int, bus: str, *, state: str = "ACTIVE", compute: bool = True, rate: int = 400) -> dict[str, Any]:
    return {
        "name": f"mlx5_{number}",
        "address": f"0000:{bus}:00.0",
        "state": state,
        "label": f"InfiniBand {rate} Gb/s" if state == "ACTIVE" else f"InfiniBand {state.lower()}",
        "compute": compute,
    }


def switch(name: str, gpus: Iterable[Any] = (), nics: Iterable[Any] = ()) -> dict[str, Any]:
    return {"name": name, "gpus": list(gpus), "nics": list(nics)}


def nvlink(count: int, code: str = "NV18", **apart: list[tuple[int, int]]) -> list[dict[str, Any]]:
    other = {(min(a, b), max(a, b)): name for name, pairs in apart.items() for a, b in pairs}
    groups: dict[str, list[list[str]]] = {}
    for a in range(count):
        for b in range(a + 1, count):
            groups.setdefault(other.get((a, b), code), []).append([f"GPU{a}", f"GPU{b}"])
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [{"code": name, "pairs": pairs} for name, pairs in ordered]


def hgx(**changes: Any) -> dict[str, Any]:
    """Return 8 GPUs and 12 NICs on 2 NUMA nodes; ``dead`` GPU, ``down`` and ``slow`` NIC, ``apart`` NVLink pairs."""
    dead, down, slow = changes.get("dead"), changes.get("down"), changes.get("slow")
    numa = []
    for node in (0, 1):
        switches = []
        for number in range(node * 4, node * 4 + 4):
            state, rate = "DOWN" if number == down else "ACTIVE", 200 if number == slow else 400
            switches.append(
                switch(
                    f"0000:{number * 16 + 0x15:02x}:01.0",
                    [gpu(number, f"{number * 16 + 0x18:02x}", answers=number != dead)],
                    [nic(number, f"{number * 16 + 0x17:02x}", state=state, rate=rate)],
                )
            )
        extra = [nic(8 + 2 * node, "28", compute=False, rate=100)]
        extra.append(nic(9 + 2 * node, "29", compute=False, state="DOWN"))
        switches.append(switch(f"0000:2{node}:01.1", [], extra))
        numa.append({"node": node, "switches": switches})
    return {"numa": numa, "nvlink": nvlink(8, **changes.get("apart", {}))}


def sixteen() -> dict[str, Any]:
    """Return 16 GPUs, four on each switch, with NICs on few switches and one NUMA node of unknown number."""
    switches = [
        switch(f"0000:{34 + s}:00.0", [gpu(4 * s + g, f"{0x34 + 4 * s + g:02x}") for g in range(4)]) for s in range(4)
    ]
    switches[0]["nics"] = [nic(0, "30"), nic(1, "31")]
    numa = [{"node": 0, "switches": switches[:2]}, {"node": None, "switches": switches[2:]}]
    return {"numa": numa, "nvlink": nvlink(16, "NV6")}


def nics_only() -> dict[str, Any]:
    """Return a machine without a GPU, one of its NICs not on PCIe."""
    switches = [switch("0000:e0:01.1", [], [nic(0, "e1"), nic(1, "e1", compute=False)]), switch("", [], [nic(2, "0")])]
    return {"numa": [{"node": None, "switches": switches}], "nvlink": []}


def bridges() -> dict[str, Any]:
    """Return four GPUs, linked in pairs by NVLink bridges; the other paths go over PCIe."""
    switches = [switch(f"0000:{n}0:01.0", [gpu(n, f"{n}1", model="NVIDIA A100-PCIE-40GB")]) for n in range(4)]
    return {
        "numa": [{"node": 0, "switches": switches}],
        "nvlink": nvlink(4, "SYS", NV12=[(0, 1), (2, 3)]),
    }


def finding(check: str, status: str, nodes: Iterable[str], message: str, **more: Any) -> dict[str, Any]:
    urgent = status in ("fail", "warn", "unknown")
    document = {
        "check": check,
        "title": more.pop("title", f"Title of {check}"),
        "status": status,
        "gating": True,
        "nodes": list(nodes),
        "subject": "",
        "message": message,
        "found": None,
        "expected": None,
        "evidence": ["cmd:ibstat"],
        "why": "Every collective waits for the slowest rank." if urgent else "",
        "fix": "Reseat the cable, then compare `ibstat` with the switch port." if urgent else "",
    }
    if urgent:
        excerpt = {"node": document["nodes"][0], "key": "cmd:ibstat", "text": "CA 'mlx5_3'\n\tState: Down\n\tRate: 40"}
        document["excerpts"] = [excerpt]
    return {**document, **more}


def node(name: str, topology: Mapping[str, Any] | None = None, **statuses: str) -> dict[str, Any]:
    checks = dict.fromkeys(CHECKS, "pass") | {key.replace("__", ".").replace("_", "-"): value
                                                    for key, value in statuses.items()}  # fmt: skip
    worst = next(s for s in ("fail", "unknown", "warn", "pass", "skip") if s in checks.values())
    document: dict[str, Any] = {
        "name": name,
        "status": worst,
        "collected_at": "2026-03-01T03:11:30Z",
        "class": "h100",
        "part": "HGX H100",
        "where": "host",
        "checks": checks,
    }
    return document | ({"topology": topology} if topology else {})


def silent(name: str, phase: str = "connect", reason: str = "connection timed out after 10 s") -> dict[str, Any]:
    return {"name": name, "status": "unknown", "no_answer": {"phase": phase, "reason": reason}, "checks": {}}


def items() -> Findings:
    """Return items of three documents."""
    rows = [
        ("FP-BW-1", "fabric-primer", "Is there enough NIC bandwidth per GPU?", "fail", ["rdma.device-count"], "", ""),
        ("FP-LAT-1", "fabric-primer", "What are p99 and p99.9 during synchronisation?", "unknown", [],
         "not judged yet: it needs a collective benchmark", "preflight check --log all_reduce_perf.out"),
        ("PA-01", "parallelism", "GPU topology (nvidia-smi topo -m)", "pass", ["topology.nvlink"], "", ""),
        ("PA-12", "parallelism", "NIC bandwidth 200G/400G/800G", "fail", ["rdma.port-rate", "rdma.port-state"], "", ""),
        ("NT-LENS-1", "network-tuning", "bottleneck lens: no overlap of compute and communication", "unknown", [],
         "no check in this version answers it; it needs an NCCL or job log", ""),
    ]  # fmt: skip
    keys = ("id", "document", "title", "status", "checks", "missing", "supply")
    made: list[dict[str, Any]] = [dict(zip(keys, row, strict=True)) for row in rows]
    return [{**item, "questions": questions(item)} for item in made]


def questions(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one question for each check of an item, or an open one if it has none."""
    names = ("text", "status", "checks", "missing")
    answered = [(f"What {check} looks at", item["status"], [check], item["missing"]) for check in item["checks"]]
    rows = answered or [("What nothing looks at", item["status"], [], item["missing"])]
    return [dict(zip(names, row, strict=True)) for row in rows]


def report(nodes: list[dict[str, Any]], findings: Findings, exit_status: int, **more: Any) -> dict[str, Any]:
    """Assemble a document; its coverage is computed from the nodes and the findings in the logs."""
    statuses = [status for each in nodes for status in each["checks"].values()]
    statuses += [each["status"] for each in findings if each["nodes"] == ["@run"]]
    silence = sum("no_answer" in each for each in nodes)
    lost = silence * len(CHECKS)
    coverage = {
        "planned": len(statuses) + lost,
        "ran": len(statuses) - statuses.count("skip"),
        "passed": statuses.count("pass"),
        "warned": statuses.count("warn"),
        "failed": statuses.count("fail"),
        "unknown": statuses.count("unknown"),
        "skipped": statuses.count("skip"),
        "no_answer": lost,
        "nodes": {"planned": len(nodes), "answered": len(nodes) - silence, "no_answer": silence},
        "off": [],
        "without_logs": [],
    }
    document = {
        "schema": "preflight.report/1",
        "run": RUN,
        "coverage": coverage,
        "nodes": nodes,
        "findings": findings,
        "checklists": items(),
        "exit_status": exit_status,
    }
    return document | more


def healthy(count: int = 64) -> dict[str, Any]:
    """Return a fleet without a fault."""
    names = [f"gpu{number:03d}" for number in range(1, count + 1)]
    passes = [finding(check, "pass", names, f"{check} is as it should be") for check in CHECKS]
    good = [{**item, "status": "pass", "missing": "", "supply": ""} for item in items()]
    good = [{**item, "questions": questions(item)} for item in good]
    return report([node(name, hgx()) for name in names], passes, 0, checklists=good)


def sick() -> dict[str, Any]:
    """Return a fleet with every kind of problem: failures, gaps, warnings, skips, silence, odd machines."""
    good = [f"gpu{number:03d}" for number in range(1, 31)]
    blind = [f"gpu{number:03d}" for number in range(40, 44)]
    nodes = [node(name, hgx()) for name in good]
    nodes += [node(name, hgx(), rdma__active_mtu="unknown", roce__chain="unknown") for name in blind]
    nodes += [
        node("gpu031", hgx(slow=5, down=2), rdma__port_rate="fail", rdma__port_state="fail"),
        node("gpu032", hgx(dead=6, apart={"NV6": [(0, 3), (1, 3)], "SYS": [(3, 7)]}), gpu__count="fail",
             topology__nvlink="fail", host__shm="warn"),
        node("gpu033", hgx(apart={"SYS": [(i, 4) for i in range(4)] + [(4, i) for i in range(5, 8)]}),
             topology__nvlink="fail"),
        node("storage1", nics_only(), **{c.replace(".", "__").replace("-", "_"): "skip" for c in CHECKS[:5]}),
        node("dgx2", sixteen(), host__shm="warn"),
        node("a100", bridges()),
        silent("gpu034"),
        silent("gpu035"),
        silent("gpu036", "host key", "the host key changed: SHA256:abc… is not the one in known_hosts"),
    ]  # fmt: skip
    nodes[-6]["notes"] = ["run without root: dmesg could not be read"]
    findings = [
        finding("rdma.port-rate", "fail", ["gpu031"], "mlx5_5:1 runs at 200 Gb/s, its peers at 400 Gb/s",
                title="RDMA ports run at the expected rate", subject="mlx5_5:1", found="200 Gb/s",
                expected="at least 400 Gb/s (cluster.toml class.h100.rate_gbps)"),
        finding("rdma.port-state", "fail", ["gpu031"], "mlx5_2:1 is DOWN/Polling, expected ACTIVE/LinkUp",
                title="RDMA ports of the compute fabric are active", subject="mlx5_2:1", found="DOWN/Polling",
                expected="ACTIVE/LinkUp"),
        *(finding("topology.nvlink", "fail", [name], f"{one} has less than NV18", subject=one,
                  title="All NVLinks between the GPUs are up", found="SYS", expected="NV18")
          for name, one in [("gpu032", f"GPU{i}") for i in range(7)] + [("gpu033", "GPU4")]),
        finding("gpu.count", "fail", ["gpu032"], "GPUs that answer: found 7, expected 8", found="7", expected="8",
                title="All GPUs are there"),
        finding("nccl-run.socket", "fail", ["@run"], "NCCL used NET/Socket for 64 channels",
                title="NCCL uses RDMA, not sockets", evidence=["log:job.log"]),
        finding("rdma.active-mtu", "unknown", blind, " `ibv_devinfo` is not installed",
                evidence=["cmd:ibv_devinfo"], fix="install `ibv_devinfo` (package ibverbs-utils) on the node"),
        finding("roce.chain", "unknown", blind, " permission denied", evidence=["cmd:mlnx_qos -i eth0"],
                fix="run with --sudo, or as root", gating=False),
        finding("host.shm", "warn", ["gpu032", "dgx2"], "/dev/shm has 64 MiB, expected at least 1 GiB",
                title="Shared memory is large enough", found="64 MiB", expected="at least 1 GiB (custom)"),
        *(finding(check, "pass", good, f"{check} is as it should be") for check in CHECKS),
        finding("gpu.count", "skip", ["storage1"], "the PCI bus holds no NVIDIA device"),
    ]  # fmt: skip
    made = report(nodes, findings, 1, origins=[ORIGIN, "demo: a sick cluster that comes with preflight"])
    made["coverage"] |= {"off": ["gpu.ecc-pages"], "without_logs": ["nccl-run.busbw"]}
    made["incidents"] = [
        incident("0a1b2c3d4e5f", findings, 10, 2, 3, first_seen="2026-02-27T22:10:00Z"),
        incident("1b2c3d4e5f60", findings, 11, owner="job"),
        incident("2c3d4e5f6071", findings, 0, impact="slows-job", owner="network",
                 cost="8 of 248 GPUs; all-reduce between nodes at about 50%"),
    ]  # fmt: skip
    return made


def incident(
    fingerprint: str, findings: Findings, *places: int, impact: str = "blocks-job", owner: str = "node",
    cost: str | None = None, first_seen: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return an incident of the findings at these places, the cause first."""
    cause = findings[places[0]]
    nodes = list(dict.fromkeys(name for place in places for name in findings[place]["nodes"]))
    return {
        "fingerprint": fingerprint, "title": cause["message"], "status": cause["status"], "impact": impact,
        "cost": cost, "owner": owner, "nodes": nodes, "subjects": [cause["subject"]] if cause["subject"] else [],
        "findings": list(places), "first_seen": first_seen,
        "next": cause["fix"] or f"preflight explain {cause['check']}",
    }  # fmt: skip


def empty() -> dict[str, Any]:
    """Return an empty report."""
    made = report([], [], 3, checklists=[])
    return {key: value for key, value in made.items() if key != "run"}


def hostile() -> dict[str, Any]:
    """Return a report with hostile text in every foreign field."""
    text = HOSTILE
    topology = hgx(dead=1)
    first = topology["numa"][0]["switches"][0]
    first["name"] = text
    first["gpus"][0] |= {"name": text, "model": text, "address": text}
    first["nics"][0] |= {"name": text, "state": text, "label": text, "address": text}
    topology["nvlink"] = [{"code": text, "pairs": [[text, "GPU1"]]}, {"code": "NV4", "pairs": [[text, text]]}]
    bad = node(text, topology, rdma__port_rate="fail")
    bad |= {"part": text, "class": text, "where": text, "collected_at": text, "notes": [text], "origin": text}
    bad["checks"][f"x.{text}"] = text
    texts = dict.fromkeys(("title", "subject", "found", "expected", "why", "fix"), text)
    excerpts = [{"node": text, "key": text, "text": text}]
    findings = [
        finding("rdma.port-rate", status, [text, f"{text}2"], text, evidence=[text], excerpts=excerpts, **texts)
        for status in ("fail", "unknown", "warn", "pass", "skip")
    ]
    question: dict[str, Any] = {"text": text, "status": text, "checks": [text], "missing": text}
    item: dict[str, Any] = {**dict.fromkeys(("id", "document", "title", "status", "missing", "supply"), text)}
    item |= {"checks": [text], "questions": [question]}
    made = report([bad, silent(f"{text}3", text, text), node("gpu001", hgx())], findings, 1, origins=[text])
    made["coverage"] |= {"off": [text], "without_logs": [text]}
    run = {"at": text, "version": text, "command": text, "seconds": 1.5, "cluster_file": text}
    incidents = [incident("3d4e5f607182", findings, 0, 2, cost=text, first_seen=text)]
    return made | {"checklists": [item], "run": run, "incidents": incidents}
