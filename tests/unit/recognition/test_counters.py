"""`preflight read` on counters of RDMA ports and NICs from other drivers and listings (made by hand)."""

from __future__ import annotations

import pytest

from preflight.recognition import read_text
from preflight.recognition.detector import TextPart


def only(text: str, kind: str) -> TextPart:
    parts = read_text(text, "pasted")
    assert [part.kind for part in parts] == [kind]
    return parts[0]


def counters(text: str, kind: str) -> dict[str, int]:
    found: dict[str, int] = only(text, kind).taken.facts["counters"]
    return found


@pytest.mark.parametrize(
    "text",
    [
        # Soft-RoCE, EFA, hns: names that no list here needs
        "link rxe0/1 sent_pkts 41 rcvd_pkts 28 duplicate_request 0\n",
        "link rdmap0s6/1 sent_pkts 41 rcvd_pkts 28 \nduplicate_request 0\n",
        "link hns_0/1 cntn 3 pid 17 comm python3 sent_pkts 41 rcvd_pkts 28 duplicate_request 0\n    LQPN: <178>\n",
    ],
)
def test_statistics_of_any_driver(text: str) -> None:
    assert counters(text, "hw_counters") == {"sent_pkts": 41, "rcvd_pkts": 28, "duplicate_request": 0}


@pytest.mark.parametrize("mark", ["node17: ", "[1,0]<stdout>:", "3: ", "2026-02-18T12:54:01.123Z "])
def test_one_line_of_statistics_behind_a_mark(mark: str) -> None:
    text = f"{mark}link rxe0/1 sent_pkts 41 rcvd_pkts 28 duplicate_request 0\n"
    assert counters(text, "hw_counters") == {"sent_pkts": 41, "rcvd_pkts": 28, "duplicate_request": 0}


def test_statistics_in_json() -> None:
    """``rdma -j statistic``; ``rdma -j resource`` is similar, but has no counters."""
    text = '[{"ifindex":0,"ifname":"bnxt_re0","port":1,"active_pds":3,"rx_bytes":99,"tx_bytes":98}]\n'
    assert counters(text, "hw_counters") == {"active_pds": 3, "rx_bytes": 99, "tx_bytes": 98}
    text = '[{"ifindex":0,"ifname":"mlx5_0","port":1,"lqpn":1,"type":"GSI","state":"RTS","sq-psn":0,"pid":7}]\n'
    assert not read_text(text, "pasted")


def test_a_link_or_a_resource_is_no_list_of_counters() -> None:
    text = "link mlx5_0/1 lqpn 8 type UD state RTS sq-psn 58 comm ib_core\n"
    assert not read_text(text, "pasted")
    text = "link mlx5_0/1 subnet_prefix fe80:0000:0000:0000 lid 3 sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP\n"
    assert only(text, "rdma link")


@pytest.mark.parametrize(
    "before",
    [
        "root@n1:/sys/class/infiniband/bnxt_re0/ports/1/hw_counters# grep . *",
        "[root@n1 hw_counters]# grep -H . *",
        '$ cd /sys/class/infiniband/mana_0/ports/1/hw_counters && for f in *; do echo "$f: $(cat $f)"; done',
    ],
)
def test_a_directory_identifies_the_source_of_names(before: str) -> None:
    rows = "rx_bytes:1234\nrx_pkts:88\nactive_ahs:2\n"
    assert counters(f"{before}\n{rows}", "hw_counters") == {"rx_bytes": 1234, "rx_pkts": 88, "active_ahs": 2}
    assert not read_text("There is more in hw_counters:\nbatch: 32\nseq_len: 2048\n", "pasted")
    # without it they are an interface's
    assert counters("These are the counters of the node\nrx_bytes:1234\nrx_pkts:88\n", "ethtool -S")


def test_one_after_the_other_in_their_directory() -> None:
    prompt = "root@n1:/sys/class/infiniband/mlx5_2/ports/1/hw_counters# cat "
    found = only(f"{prompt}np_cnp_sent\n12\n{prompt}rp_cnp_handled\n8812\n", "hw_counters").taken.facts
    assert found["counters"] == {"np_cnp_sent": 12, "rp_cnp_handled": 8812}
    assert list(found["ports"]) == ["mlx5_2/1"]


def test_names_with_blanks_in_them() -> None:
    path = "/sys/class/infiniband/irdma0/ports/1/hw_counters/"
    text = f"{path}Nak Sequence Error:2\n{path}RTO:0\n{path}Rcvd Out of order packets:7\n"
    assert counters(text, "hw_counters") == {"Nak Sequence Error": 2, "RTO": 0, "Rcvd Out of order packets": 7}
    text = f"==> {path}Nak Sequence Error <==\n2\n\n==> {path}RNR sent <==\n0\n"
    assert counters(text, "hw_counters") == {"Nak Sequence Error": 2, "RNR sent": 0}


def test_counters_that_a_port_does_not_have() -> None:
    path = "/sys/class/infiniband/i40iw0/ports/1/counters/"
    text = f"{path}link_downed:N/A (no PMA)\n{path}port_rcv_errors:N/A (no PMA)\n"
    assert counters(text, "hw_counters") == {}
    assert counters(f"{text}{path}port_xmit_wait:7\n", "hw_counters") == {"port_xmit_wait": 7}


def test_standard_statistics_have_another_head() -> None:
    text = "Standard stats for eth0:\neth-mac-FramesTransmittedOK: 9\neth-mac-AlignmentErrors: 0\n"
    part = only(text, "ethtool -S")
    assert part.taken.complete
    assert part.taken.facts["counters"] == {"eth-mac-FramesTransmittedOK": 9, "eth-mac-AlignmentErrors": 0}


@pytest.mark.parametrize("name", ["pps_allowance_exceeded", "link_down_events_phy"])
def test_names_recognised_by_their_suffix(name: str) -> None:
    assert counters(f"     bw_in_allowance_exceeded: 7\n     {name}: 3\n", "ethtool -S")[name] == 3


def test_lists_that_lost_their_line_ends() -> None:
    text = (
        "# Port counters: Lid 5 port 1PortSelect:......................1CounterSelect:...................0x1B01"
        "SymbolErrorCounter:..............0LinkDownedCounter:...............2PortXmitData:....................100\n"
    )
    found = only(text, "perfquery").taken.facts
    assert (found["lid"], found["port"]) == (5, 1)
    assert found["counters"] == {"SymbolErrorCounter": 0, "LinkDownedCounter": 2, "PortXmitData": 400}


def test_a_module_that_lost_its_line_ends() -> None:
    column = "{:<42}: {}"
    rows = [("Identifier", "0x11 (QSFP28)"), ("Connector", "0x23 (No separable connector)"),
            ("Vendor name", "Mellanox"), ("Vendor PN", "MCP1600-C003"), ("Vendor SN", "MT1703VS01234")]  # fmt: skip
    found = only("".join(column.format(*row) for row in rows) + "\n", "ethtool -m").taken.facts
    assert (found["identifier"], found["vendor"], found["part_number"]) == ("QSFP28", "Mellanox", "MCP1600-C003")


def test_user_priorities_as_older_releases_name_them() -> None:
    """mlnx_qos of MLNX_OFED 2 to 4: ``up`` for a priority, and below it the socket priorities mapped to it."""
    text = (
        "tc: 0 ratelimit: 3 Gbps, tsa: strict\n\tup:  0\n\t\tskprio: 0\n\t\tskprio: 1\n"
        "\t\tskprio: 2 (tos: 8)\n\tup:  3\n"
        "tc: 1 ratelimit: unlimited, tsa: strict\n\tup:  1\n"
    )
    for written in (text, text.replace("\t", "")):
        assert only(written, "mlnx_qos").taken.facts["priority_to_tc"] == {"0": 0, "3": 0, "1": 1}


def test_a_field_of_a_later_release_belongs_to_its_port() -> None:
    text = (
        "CA 'mlx5_0'\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n"
        "\t\tEffective speed: 400 Gb/s\n\t\tBase lid: 3\n\t\tSM lid: 1\n\t\tPort GUID: 0xa088c2030088b309\n"
        "\t\tLink layer: InfiniBand\n"
    )
    port = only(text, "ibstat").taken.facts["ports"][0]
    assert (port["lid"], port["sm_lid"], port["link_layer"]) == (3, 1, "InfiniBand")


@pytest.mark.parametrize("sign", [": ", "="])
def test_the_first_name_of_the_annotation(sign: str) -> None:
    text = (
        f"Annotations:  k8s.v1.cni.cncf.io/networks: macvlan\n"
        f"              k8s.v1.cni.cncf.io/networks-status{sign}[{{\n"
        '    "name": "sdn",\n    "ips": ["10.1.0.2"],\n    "dns": {}\n},{\n    "name": "macvlan",\n'
        '    "interface": "net1",\n    "mac": "72:00:53:b4:48:c4"\n}]\n'
    )
    part = only(text, "network-status")
    assert [one["name"] for one in part.taken.facts["networks"]] == ["sdn", "macvlan"]
    assert part.taken.complete


PORT = """# Port counters: Lid 7 port 1 (CapMask: 0x5A00)
PortSelect:......................1
SymbolErrorCounter:..............{symbols}
LinkDownedCounter:...............{downs}
PortXmitDiscards:................{discards}
"""


@pytest.mark.parametrize(
    ("symbols", "downs", "discards", "named"),
    [
        (0, 3, 20, {}),
        (0, 0, 0, {}),
        (900, 3, 20, {"counters.link-quality": "900", "counters.flaps": "3", "counters.loss": "20"}),
        (900, 1, 0, {"counters.link-quality": "900"}),  # each port was down once, when its node booted
    ],
)
def test_a_few_losses_count_beside_many_errors(symbols: int, downs: int, discards: int, named: dict[str, str]) -> None:
    (part,) = read_text(PORT.format(symbols=symbols, downs=downs, discards=discards), "pasted")
    unknown = {item["check"]: item["message"] for item in part.findings if item["status"] == "unknown"}
    assert unknown.keys() == named.keys()
    assert all(figure in unknown[check] for check, figure in named.items())
    shown = " ".join(item["message"] for item in part.findings)
    assert not downs or f"LinkDownedCounter {downs}" in shown, "what is tolerated is listed"
