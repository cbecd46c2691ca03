"""`preflight read` on RDMA tools' output after searches, loops and cuts (made by hand from formats)."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.recognition import read_text
from preflight.recognition.detector import TextPart


def only(text: str, kind: str) -> TextPart:
    parts = read_text(text, "pasted")
    assert [part.kind for part in parts] == [kind]
    return parts[0]


def ports(text: str, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = only(text, kind).taken.facts["ports"]
    return found


def test_a_search_for_states_leaves_ports_without_numbers() -> None:
    """``ibstat | grep -i state``: the text does not show their devices."""
    found = ports(
        "$ ibstat | grep -i state\n\t\tState: Active\n\t\tPhysical state: LinkUp\n"
        "\t\tState: Down\n\t\tPhysical state: Disabled\n",
        "ibstat",
    )
    assert [(port["device"], port["port"], port["state"], port["physical_state"]) for port in found] == [
        (None, None, "Active", "LinkUp"), (None, None, "Down", "Disabled"),
    ]  # fmt: skip


def test_a_search_that_includes_the_names() -> None:
    found = ports(
        "hca_id:\tmlx5_0\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tactive_mtu:\t\t4096 (5)\n"
        "hca_id:\tmlx5_1\n\t\t\tstate:\t\t\tPORT_DOWN (1)\n\t\t\tactive_mtu:\t\t1024 (3)\n",
        "ibv_devinfo",
    )
    assert [(port["device"], port["port"], port["state"], port["active_mtu"]) for port in found] == [
        ("mlx5_0", None, "ACTIVE", 4096), ("mlx5_1", None, "DOWN", 1024),
    ]  # fmt: skip


@pytest.mark.parametrize("line", ["Link layer: InfiniBand", "        Physical state: LinkUp", "State: Active"])
def test_one_line_behind_its_command(line: str) -> None:
    assert len(ports(f"$ ibstat mlx5_0 | grep -i x\n{line}\n", "ibstat")) == 1
    assert not read_text(f"the cluster says\n{line}\n", "pasted")


def test_the_beginning_of_a_word_is_no_word() -> None:
    head = "CA 'mlx5_0'\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: "
    assert ports(head + "Li", "ibstat")[0]["physical_state"] is None
    assert ports(head + "LinkUp\n", "ibstat")[0]["physical_state"] == "LinkUp"
    head = "hca_id:\tmlx5_0\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_"
    assert ports(head + "ACT", "ibv_devinfo")[0]["state"] is None
    assert ports(head + "ACTIVE (4)\n", "ibv_devinfo")[0]["state"] == "ACTIVE"


def test_a_line_that_lost_its_beginning_names_no_device() -> None:
    part = only("tX-4 QSFP28 fw 12.22.1002 port 1 (ACTIVE) ==> enP5p1s0 (Up)\n", "ibdev2netdev")
    assert not part.taken.complete
    assert part.taken.facts["ports"][0]["device"] is None
    assert part.taken.facts["ports"][0]["netdev"] == "enP5p1s0"


@pytest.mark.parametrize("before", ["node17: ", "[12:54:01] ", "2026-02-18T12:54:01.123Z ", "Expected: "])
def test_one_line_behind_a_mark(before: str) -> None:
    assert ports(f"{before}mlx5_0 port 1 ==> ib0 (Up)\n", "ibdev2netdev")[0]["device"] == "mlx5_0"
    line = "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ib0"
    assert ports(f"{before}{line}\n", "rdma link")[0]["netdev"] == "ib0"


PATH = "/sys/class/infiniband/mlx5_0/ports/1/hw_counters"


@pytest.mark.parametrize(
    "text",
    [
        f"{PATH}/out_of_sequence:52\n{PATH}/lifespan:10\n",
        f"==> {PATH}/out_of_sequence <==\n52\n\n==> {PATH}/lifespan <==\n10\n",
        f"{PATH}/out_of_sequence\n52\n{PATH}/lifespan\n10\n",
        f"root@n1:~# cat {PATH}/out_of_sequence\n52\nroot@n1:~# cat {PATH}/lifespan\n10\n",
        "link mlx5_0/1 out_of_sequence 52 lifespan 10\n",
        "link mlx5_0/1\n    out_of_sequence 52\n    lifespan 10\n",
        '[{"ifindex": 0, "ifname": "mlx5_0", "port": 1, "out_of_sequence": 52, "lifespan": 10}]\n',
    ],
)
def test_counters_however_they_were_listed(text: str) -> None:
    facts = only(text, "hw_counters").taken.facts
    assert facts["counters"] == {"out_of_sequence": 52, "lifespan": 10}
    assert facts["ports"] == {"mlx5_0/1": facts["counters"]}


def test_names_above_their_values() -> None:
    facts = only("out_of_sequence\n52\npacket_seq_err\n1,234\nlifespan\n10\n", "hw_counters").taken.facts
    assert facts["counters"] == {"out_of_sequence": 52, "packet_seq_err": 1234, "lifespan": 10}


def test_a_name_without_its_value_is_cut() -> None:
    part = only("link mlx5_0/1 out_of_sequence 52 packet_se", "hw_counters")
    assert part.taken.facts["counters"] == {"out_of_sequence": 52}
    assert not part.taken.complete


def test_ports_in_software_have_no_packet_size_of_their_own() -> None:
    def devinfo(device: str, transport: str, vendor: str) -> str:
        return (
            f"hca_id:\t{device}\n\ttransport:\t\t\t{transport}\n\tvendor_id:\t\t\t{vendor}\n\tphys_port_cnt:\t\t\t1\n"
            "\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tmax_mtu:\t\t4096 (5)\n"
            "\t\t\tactive_mtu:\t\t1024 (3)\n"
            "\t\t\tsm_lid:\t\t\t0\n\t\t\tport_lid:\t\t0\n\t\t\tport_lmc:\t\t0x00\n\t\t\tlink_layer:\t\tEthernet\n"
        )

    def warned(text: str) -> bool:
        return any(finding["status"] == "warn" for finding in only(text, "ibv_devinfo").findings)

    assert warned(devinfo("mlx5_0", "InfiniBand (0)", "0x02c9"))
    assert not warned(devinfo("rxe0", "InfiniBand (0)", "0xffffff"))
    assert not warned(devinfo("siw0", "iWARP (1)", "0x626d74"))
    assert not warned(devinfo("cxgb4_0", "iWARP (1)", "0x1425"))


def test_abilities_that_no_list_here_knows() -> None:
    """``ibv_devinfo -v``: the text between a device and its ports differs between libraries."""
    found = ports(
        "hca_id:\tmlx5_0\n\tfw_ver:\t\t\t\t28.39.1002\n\tphys_port_cnt:\t\t\t1\n\tuc_odp_caps:\n"
        "\t\t\t\t\tNO SUPPORT\n\tmax fetch and add bit boundary\t64\n\tLog number of strides for single WQE: 3 - 16\n"
        "\t\t\t2 bytes\n\n\tsome ability of a later year = yes\n\tooo_rc_caps  = 0x1\n\tDevice ports:\n\t\tport:\t1\n"
        "\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tactive_mtu:\t\t4096 (5)\n\t\t\tport_lid:\t\t7\n",
        "ibv_devinfo",
    )
    assert [(port["device"], port["port"], port["state"], port["lid"], port["firmware"]) for port in found] == [
        ("mlx5_0", 1, "ACTIVE", 7, "28.39.1002")
    ]


def test_what_is_further_in_but_of_something_else_ends_a_device() -> None:
    text = (
        "hca_id:\tmlx5_0\n\tfw_ver:\t\t\t\t28.39.1002\n\tphys_port_cnt:\t\t\t1\n"
        "\tand then we saw\n\tthat all was well\nThe other node:\n\tmax_mtu:\t\t4096 (5)\n\tsm_lid:\t\t3\n"
    )
    first, second = read_text(text, "pasted")
    assert first.taken.facts == {"ports": [], "devices": ["mlx5_0"]}
    assert [(port["device"], port["sm_lid"]) for port in second.taken.facts["ports"]] == [(None, 3)]


@pytest.mark.parametrize("between", ["", "--\n"])
def test_every_find_of_a_search_is_a_port(between: str) -> None:
    """``ibstatus | grep -A 1 'phys state'``."""
    found = ports(
        between.join(f"        phys state:      5: LinkUp\n        rate:            {rate} Gb/sec (4X NDR)\n"
                     for rate in (400, 200, 400)),
        "ibstatus",
    )  # fmt: skip
    assert [(port["device"], port["physical_state"], port["rate_gbps"]) for port in found] == [
        (None, "LinkUp", 400), (None, "LinkUp", 200), (None, "LinkUp", 400),
    ]  # fmt: skip


def test_a_sentence_about_a_link_is_no_link() -> None:
    assert not read_text("plug it in; link mlx5_0/1 should say state ACTIVE.\n", "pasted")
    assert not read_text("on the spine link a1/2 goes to state DOWN, see above\n", "pasted")


@pytest.mark.parametrize(
    "text",
    [
        "link mana_0/1\n    requester_timeout 45\n    nak_inv_req 0\n",
        "::::::::::::::\n/sys/class/infiniband/mana_0/ports/1/hw_counters/requester_timeout\n::::::::::::::\n45\n"
        "::::::::::::::\n/sys/class/infiniband/mana_0/ports/1/hw_counters/nak_inv_req\n::::::::::::::\n0\n",
    ],
)
def test_counters_by_names_of_any_driver(text: str) -> None:
    """``rdma -p statistic``, and ``more * | cat``: these are counters regardless of their names."""
    assert only(text, "hw_counters").taken.facts["ports"] == {"mana_0/1": {"requester_timeout": 45, "nak_inv_req": 0}}


def test_counters_filtered_by_grep() -> None:
    """``perfquery | grep``, the dots gone."""
    part = only("PortRcvErrors: 7\nSymbolErrorCounter: 42\nLinkDowned: 1\n", "perfquery")
    assert part.taken.facts["counters"] == {"PortRcvErrors": 7, "SymbolErrorCounter": 42, "LinkDowned": 1}
    assert not part.taken.complete


@pytest.mark.parametrize("dots", ["..", "...", "[...]"])
def test_dots_behind_a_port_that_is_down(dots: str) -> None:
    """Others were there: no finding claims that none is active."""
    part = only(
        "CA 'mlx5_0'\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Disabled\n"
        f"\t\tRate: 40\n\t\tLink layer: Ethernet\n{dots}\n",
        "ibstat",
    )
    assert not part.taken.complete
    assert not [found for found in part.findings if found["status"] == "fail"]


def test_a_list_in_the_comments_of_a_script() -> None:
    found = ports("#mlx5_0 port 1 ==> ib0 (Up)\n#mlx5_1 port 1 ==> ib1 (Down)\n", "ibdev2netdev")
    assert [(port["device"], port["netdev"]) for port in found] == [("mlx5_0", "ib0"), ("mlx5_1", "ib1")]


@pytest.mark.parametrize("value", ['{"a": 1}', '["LINK_UP"]', "null"])
def test_a_state_that_is_not_a_word_is_a_gap(value: str) -> None:
    link = '{"ifname": "mlx5_3", "port": 1, "state": "ACTIVE", "physical_state": %s, "netdev": %s}'
    (part,) = read_text(f"[{link % (value, value)}]\n", "pasted")
    (port,) = part.taken.facts["ports"]
    assert (port["device"], port["state"], port["physical_state"], port["netdev"]) == ("mlx5_3", "ACTIVE", None, None)
    assert [cut.what for cut in part.taken.cut] == [
        f"the {name} of mlx5_3 port 1 is neither text nor a number" for name in ("netdev", "physical_state")
    ]
    unnamed = link.replace('"mlx5_3"', value) % ('"LINK_UP"', '"ib3"')
    assert read_text(f"[{unnamed}]\n", "pasted") == []
