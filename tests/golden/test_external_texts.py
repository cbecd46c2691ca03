"""Texts in the form of real tools, recorded or re-made: results asserted by hand, file by file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from preflight.evidence.document import SWITCH, Evidence
from preflight.facts import (
    addresses,
    container,
    counter_growth,
    cpu_time,
    host,
    lspci,
    nccl_environment,
    port_qos,
    rdma_ports,
    system_settings,
    unique_ids,
    versions,
    xid,
)
from preflight.facts.nvidia import smi_xml
from preflight.facts.switch import linux
from preflight.facts.switch.model import BgpSession, Heard
from preflight.parsers import nccl_log
from preflight.parsers.host import boot_options, checkpoint, clock_reading
from preflight.parsers.host.kernel_log import parse as parse_kernel_log
from preflight.parsers.infiniband import iblinkinfo, ibnetdiscover, ibqueryerrors, ibqueryerrors_data, sminfo_saquery
from preflight.parsers.nccl_tests import text as nccl_tests
from preflight.parsers.network import ethtool_module, listening, lldp, network_status, perftest, ping
from preflight.parsers.nvidia import driver_version, nvlink_status, topo_matrix
from preflight.parsers.qos import dcb, mlnx_qos
from preflight.parsers.rdma import ibstat
from preflight.parsers.record import lines_of_record
from preflight.parsers.switch import session
from preflight.probes.sweep import sweep
from preflight.textprep.plain_text import integer
from tests.support import external_texts
from tests.support.external_texts import text

#: The expected result of each file; a file of the index without an entry here fails a test.
READ: dict[str, Callable[[], None]] = {}


def reads(*files: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Return the files that a test reads."""

    def note(function: Callable[[], None]) -> Callable[[], None]:
        for file in files:
            READ[file] = function
        return function

    return note


def test_every_text_is_read_here() -> None:
    assert {sample.file for sample in external_texts.every()} == set(READ)
    assert {path.name for path in external_texts.FOLDER.iterdir() if path.is_file()} == set(READ) | {
        "index.toml",
        "remade.md",
        "remade.toml",
    }


def test_every_text_names_its_origin() -> None:
    for sample in external_texts.every():
        assert sample.origin.startswith("https://") or "Debian" in sample.origin, sample.file
        assert sample.remade == sample.origin.startswith("https://"), "what was published is re-made before it is kept"
        assert len(sample.text) < 25_000, "an excerpt is enough"


# --- GPUs ------------------------------------------------------------------------------------------


@reads("topo_h100_4gpu_nv6.txt")
def test_four_h100_each_with_its_own_nic() -> None:
    found = topo_matrix.parse(text("topo_h100_4gpu_nv6.txt"))
    assert found.gpus == ("GPU0", "GPU1", "GPU2", "GPU3")
    assert found.nics == ("NIC0", "NIC1", "NIC2", "NIC3")
    assert {found.nvlinks("GPU0", other) for other in ("GPU1", "GPU2", "GPU3")} == {6}
    assert [found.nearest_nics(name) for name in found.gpus] == [("PIX", (f"NIC{n}",)) for n in range(4)]
    assert found.cpu_affinity["GPU2"] == "5,13,21,29"
    assert found.cut_rows == ()


@reads("topo_2x1080ti.txt")
def test_two_gpus_without_nvlink_or_nic() -> None:
    found = topo_matrix.parse(text("topo_2x1080ti.txt"))
    assert found.gpus == ("GPU0", "GPU1")
    assert found.nics == ()
    assert found.links["GPU0"]["GPU1"] == "PHB"
    assert found.nvlinks("GPU0", "GPU1") == 0
    assert found.nearest_nics("GPU0") == ("", ())
    assert found.cpu_affinity == {"GPU0": "0-15", "GPU1": "0-15"}


@reads("topo_h100_hgx_cut.txt")
def test_a_matrix_that_is_cut_lists_the_missing_rows() -> None:
    found = topo_matrix.parse(text("topo_h100_hgx_cut.txt"))
    assert len(found.gpus) == 8
    assert len(found.nics) == 9
    assert found.nvlinks("GPU0", "GPU5") == 18
    assert found.nearest_nics("GPU3") == ("PIX", ("NIC4",))
    assert found.cpu_affinity["GPU4"] == "40-59,120-139"
    assert found.cut_rows == ("GPU6", "GPU7", *(f"NIC{n}" for n in range(9)))


@reads("nvidia_smi_a100_mig.xml")
def test_an_a100_in_mig_mode() -> None:
    found = smi_xml.parse(text("nvidia_smi_a100_mig.xml"))
    (one,) = found.gpus
    assert found.driver == "535.54.03"
    assert found.silent == ()
    assert (one.name, one.address) == ("NVIDIA A100-SXM4-80GB", "0000:41:00.0")
    assert one.uuid == "GPU-867242d9-0b36-8651-e611-4e64677fc513"
    assert (one.mig, one.mig_pending, one.persistence, one.ecc) == (True, True, False, True)
    assert (one.memory_total_mib, one.memory_reserved_mib, one.memory_used_mib) == (81920, 874, 62)
    assert one.bar1_total_mib == 131072
    assert (one.pcie_generation, one.pcie_generation_max, one.pcie_width, one.pcie_width_max) == (4, 4, 16, 16)
    assert (one.power_limit_w, one.power_enforced_w, one.power_default_w) == (500.0, 500.0, 500.0)
    assert (one.temperature_c, one.temperature_slowdown_c, one.margin_c) == (31, 89, 58)
    assert (one.performance_state, one.event_reasons, one.compute_mode) == (0, 0, "Default")
    assert (one.sm_clock_mhz, one.sm_clock_max_mhz) == (1230, 1410)
    assert (one.ecc_volatile_sram_uncorrected, one.ecc_aggregate_dram_uncorrected) == (0, 0)
    assert (one.vbios, one.inforom, one.gsp) == ("92.00.36.00.02", "G506.0212.00.01", "535.54.03")
    for name in ("temperature_margin_c", "utilisation_pct", "remapped_corrected", "retired_single", "fabric"):
        assert one.not_reported(name), f"{name} says N/A"
    assert one.recovery_action is None


@reads("nvlink_a100.txt")
def test_twelve_links_of_an_a100() -> None:
    found = nvlink_status.parse(text("nvlink_a100.txt"))
    assert list(found) == ["GPU-af0e39f7-dfc2-44d6-f108-00880f7a6d28", "GPU-7a771669-757e-9273-2339-f5ea7a785c8b"]
    assert set(found.values()) == {nvlink_status.Links((True,) * 12, 25.0)}


@reads("nvrm_open_565.txt", "nvrm_jetson.txt")
def test_the_loaded_driver() -> None:
    assert driver_version.driver_version(text("nvrm_open_565.txt")) == "565.57.01"
    assert driver_version.open_modules(text("nvrm_open_565.txt"))
    assert driver_version.open_modules(text("nvrm_jetson.txt"))
    with pytest.raises(
        ValueError, match="contains no NVRM version"
    ):  # a Jetson's is not a version of a data centre driver
        driver_version.driver_version(text("nvrm_jetson.txt"))


# --- the kernel's log ------------------------------------------------------------------------------


@reads("dmesg_fallen_at_load.txt")
def test_a_gpu_that_was_gone_before_the_driver_logged_that_it_was_loaded() -> None:
    log = parse_kernel_log(text("dmesg_fallen_at_load.txt"))
    (event,) = xid.events(log).gpus
    assert (event.address, event.code) == ("0000:cb:00.0", 79)
    assert event.at_s == 2766.10357
    assert [line.at_s for line in log] == [2766.10357] * 3 + [2766.235087, 2766.235094]


@reads("dmesg_ctime_xid.txt")
def test_an_exception_and_the_timeout_after_it() -> None:
    exception, timeout = xid.events(parse_kernel_log(text("dmesg_ctime_xid.txt"))).gpus
    assert (exception.address, exception.code, exception.pid) == ("0000:ca:00.0", 13, None)
    assert exception.text.endswith("Illegal Instruction Parameter")
    assert (timeout.address, timeout.code, timeout.pid) == ("0000:ca:00.0", 109, 1685614)
    assert timeout.at_s - exception.at_s == 5


@reads("dmesg_boot_mlx5.txt", "dmesg_softroce.txt")
def test_logs_without_any_xid() -> None:
    lines = parse_kernel_log(text("dmesg_boot_mlx5.txt"))
    assert [line.text for line in lines][-1] == "mlx5_core 0000:cd:00.0 mlx5_5: Port: 1 Link ACTIVE"
    assert xid.events(lines) == xid.Events((), ())
    guest = parse_kernel_log(text("dmesg_softroce.txt"))
    assert xid.events(guest) == xid.Events((), ())
    assert any("is not on the same node!" in line.text for line in guest)


# --- PCI -------------------------------------------------------------------------------------------


@reads("lspci_a100.txt")
def test_an_a100s_device_control() -> None:
    (found,) = lspci.parse(text("lspci_a100.txt")).values()
    assert found.address == "0000:68:00.0"
    assert (found.max_read_request_bytes, found.relaxed_ordering) == (512, True)
    assert found.acs is None, "an endpoint without the capability"
    assert not found.denied


@reads("lspci_softroce.txt")
def test_root_ports_with_acs_off() -> None:
    found = lspci.parse(text("lspci_softroce.txt"))
    ports = [function for function in found.values() if function.acs is not None]
    assert len(ports) == text("lspci_softroce.txt").count("ACSCtl:") == 2
    assert {function.acs for function in ports} == {frozenset()}
    assert all(function.max_read_request_bytes == 128 for function in ports)
    assert found["0000:00:00.0"].max_read_request_bytes is None, "a host bridge has no Express capability"


# --- RDMA ------------------------------------------------------------------------------------------


def ports(file: str) -> list[tuple[str, str, str, float | None, str, int | None]]:
    found = rdma_ports.parse_ibstat(text(file))
    return [(p.name, p.state, p.physical_state, p.rate_gbps, p.link_layer, p.sm_lid) for p in found]


@reads("ibstat_mt4125.txt", "ibstat_mlx4_down.txt", "ibstat_ibsim.txt", "ibstat_softroce.txt", "ibstat_partial.txt")
def test_ibstat() -> None:
    assert ports("ibstat_mt4125.txt") == [
        ("mlx5_0:1", "ACTIVE", "LinkUp", 100.0, "Ethernet", 0), ("mlx5_1:1", "ACTIVE", "LinkUp", 100.0, "Ethernet", 0),
    ]  # fmt: skip
    cut = ibstat.parse_lines(lines_of_record(text("ibstat_mlx4_down.txt")), 0)  # one of its two ports
    (port,) = cut.value.ports
    assert (port.name, port.logical, port.trained, port.sm_lid) == ("mlx4_0:1", "DOWN", "Disabled", 11)
    with pytest.raises(ValueError, match="the ports of mlx4_0 are missing"):
        ports("ibstat_mlx4_down.txt")
    assert ports("ibstat_ibsim.txt") == [("ibsim0:1", "ACTIVE", "LinkUp", 104.0, "IB", 1)]
    assert ports("ibstat_softroce.txt")[0] == ("rxe0:1", "ACTIVE", "LinkUp", 100.0, "Ethernet", 0)
    with pytest.raises(ValueError, match="incomplete"):
        ports("ibstat_partial.txt")


@reads("ibv_devinfo_h100_roce.txt", "ibv_devinfo_ndr.txt", "ibv_devinfo_down.txt", "ibv_devinfo_softroce.txt")
def test_active_mtu() -> None:
    assert rdma_ports.parse_active_mtus(text("ibv_devinfo_h100_roce.txt")) == {("mlx5_2", 1): 4096}
    assert rdma_ports.parse_active_mtus(text("ibv_devinfo_ndr.txt")) == {("mlx5_3", 1): 4096}
    assert rdma_ports.parse_active_mtus(text("ibv_devinfo_down.txt")) == {("mlx5_12", 1): 1024}
    assert rdma_ports.parse_active_mtus(text("ibv_devinfo_softroce.txt")) == {("rxe0", 1): 4096, ("rxe1", 1): 4096}


@reads("dcb_app_roce.json", "dcb_buffer_roce.json", "dcb_dcbx_roce.json", "ethtool_pause_on.txt")
def test_the_rest_of_a_ports_qos() -> None:
    listed = dcb.parse_app(text("dcb_app_roce.json"))
    assert (listed.priority(26), listed.priority(48)) == (3, 6)
    buffers = dcb.parse_buffer(text("dcb_buffer_roce.json"))
    assert buffers.of_priority == (0, 0, 0, 1, 0, 0, 0, 0)
    assert buffers.bytes[:3] == (133120, 122880, 0)
    assert dcb.parse_dcbx(text("dcb_dcbx_roce.json")) is not None
    assert port_qos.parse_pause(text("ethtool_pause_on.txt")) == port_qos.Pause(True, True)


@reads("ethtool_statistics_mlx5_head.txt")
def test_counters_of_a_connectx_4() -> None:
    found = counter_growth.parse_ethtool(text("ethtool_statistics_mlx5_head.txt"))
    assert len(found) == 23
    assert (found["rx_bytes"], found["tx_csum_partial"]) == (2058946137052, 681331867)


@reads("ethtool_fec_rs.txt", "ethtool_statistics_virtio.txt", "proc_stat.txt", "carrier_changes.txt")
def test_counters_and_fec() -> None:
    assert ethtool_module.parse_fec(text("ethtool_fec_rs.txt")) == "RS"
    found = counter_growth.parse_ethtool(text("ethtool_statistics_virtio.txt"))
    assert (found["rx_queue_0_packets"], found["rx_queue_0_kicks"]) == (0, 1)
    assert len(found) == sum(":" in line for line in text("ethtool_statistics_virtio.txt").split("\n")[1:])
    ticks = cpu_time.parse(text("proc_stat.txt"))
    assert set(ticks) == {0, 1}
    assert ticks[0][0] > 0, "user time"
    assert integer(text("carrier_changes.txt"), "carrier_changes") >= 0


@reads("mlxlink_bluefield3_copper.txt", "ethtool_module_qsfp28.txt")
def test_cables_and_modules() -> None:
    link = ethtool_module.parse_mlxlink(text("mlxlink_bluefield3_copper.txt"))
    assert (link.raw_ber, link.effective_ber, link.symbol_ber) == (15e-255, 15e-255, None), "its nought"
    assert (link.fec, link.cable, link.minutes) == ("Standard RS-FEC - RS(528,514)", "Passive copper cable", 31408.6)
    assert (link.temperature_c, link.limits_c) == (None, None)
    module = ethtool_module.parse_module(text("ethtool_module_qsfp28.txt"))
    assert (module.identifier, module.vendor, module.measures, module.flags) == ("QSFP28", "FINISAR CORP", False, ())


@reads("dcb_pfc_prio3.json", "mlnx_qos_four_priorities.txt")
def test_pfc() -> None:
    assert dcb.parse_pfc(text("dcb_pfc_prio3.json")) == {3}
    shown = mlnx_qos.parse_lines(lines_of_record(text("mlnx_qos_four_priorities.txt")), 0).value
    assert (shown.lossless, shown.trust, shown.dcbx_owner) == (frozenset({1, 4, 5, 7}), "dscp", "os")
    assert shown.dscp is not None
    assert [shown.dscp.priority(dscp) for dscp in (0, 26, 63)] == [0, 3, 7]


@reads("mlnx_qos_prio3_no_buffers.txt")
def test_qos_before_buffers_were_shown() -> None:
    old = mlnx_qos.parse_record(text("mlnx_qos_prio3_no_buffers.txt"))
    assert (old.lossless, old.trust, old.dcbx_owner, old.buffers) == (frozenset({3}), "dscp", "os", None)


@reads("ibnetdiscover_ibsim.txt", "iblinkinfo_ibsim.txt", "ibqueryerrors_ibsim.txt", "sminfo_ibsim.txt")
def test_a_simulated_fabric() -> None:
    fabric = ibnetdiscover.parse(text("ibnetdiscover_ibsim.txt"))
    assert (len(fabric.switches), len(fabric.hcas), len(fabric.links)) == (4, 4, 8)
    assert {(link.speed, link.gbps) for link in fabric.links} == {("4xHDR", 200.0)}
    ports = iblinkinfo.parse(text("iblinkinfo_ibsim.txt"))
    assert [port.state for port in ports] == ["Active"] * 6 + ["Down"] * 6
    assert (ports[2].name, ports[2].number, ports[2].lane_gbps, ports[2].width) == ("leaf01", 1, 53.125, 4)
    errors = ibqueryerrors.parse(text("ibqueryerrors_ibsim.txt"))
    assert errors.nodes == 14
    assert errors.counters["0c42a10300000000", 1] == {"SymbolErrorCounter": 1234, "LinkDownedCounter": 7}
    assert errors.counters["0c42a10300000000", 3] == {"PortXmitDiscards": 900}, "not the line ALL, which is full at 255"
    manager = sminfo_saquery.parse_sminfo(text("sminfo_ibsim.txt"))
    assert manager == sminfo_saquery.Manager(lid=1, guid="b8cef60300000001", priority=0, state=3)


@reads("saquery_managers_ibsim.txt", "ibqueryerrors_counters_ibsim.txt", "ibqueryerrors_one_line.txt")
def test_managers_and_traffic_of_a_simulated_fabric() -> None:
    (listed,) = (probe.listed for probe in sweep() if probe.listed)
    assert re.findall(listed[1], text("saquery_managers_ibsim.txt")) == ["1"]
    carried = ibqueryerrors_data.parse(text("ibqueryerrors_counters_ibsim.txt"))
    assert len(carried) == text("ibqueryerrors_counters_ibsim.txt").count(" port ") == 28
    assert min(one.sent for one in carried.values()) == 0 < max(one.sent for one in carried.values())
    assert not ibqueryerrors_data.rates(carried, carried, 1.0)["0c42a10300000000", 5].sent
    with pytest.raises(ValueError, match="without a summary"):
        ibqueryerrors.parse(text("ibqueryerrors_one_line.txt"))


@reads("lldp_neighbours.json")
def test_the_other_end_of_a_cable() -> None:
    (end,) = lldp.parse(text("lldp_neighbours.json")).values()
    assert (end.netdev, end.switch, end.port) == ("ethA", "vm", "d6:5a:4a:18:5d:db")
    assert (end.pfc, end.pfc_willing) == (frozenset({3}), False)
    assert end.ets
    assert end.ets.percent == (0, 50, 50, 0, 0, 0, 0, 0)


@reads("linux_switch_frr.txt")
def test_a_switch_with_frr() -> None:
    pasted = session.recorded(text("linux_switch_frr.txt"))
    assert pasted
    platform, shown, answers = pasted
    assert (platform.name, shown.name) == ("linux", "leaf1")
    evidence = Evidence(shown.name, "", platform.records(answers), kind=SWITCH, platform="linux")
    facts = linux.facts(evidence)
    (port,) = facts.ports.values()
    assert (port.name, port.up, port.mtu, port.speed_gbps) == ("swp1", True, 9000, None)
    assert port.heard == Heard("gpu001", "1a:3a:15:7d:9d:7a", "1a:3a:15:7d:9d:7a", "enp24s0")
    assert facts.bgp == {"198.51.100.1": BgpSession("Established", "gpu001", off=False)}
    assert (facts.first.ports["swp1"].in_octets, facts.first.ports["swp1"].out_octets) == (1426, 2259)
    assert set(facts.gaps) >= {"speed", "uptime", "pfc", "ecn"}


# --- containers ------------------------------------------------------------------------------------


@reads("network_status_rdma.json")
def test_a_pods_networks() -> None:
    default, rail = network_status.parse_network_status(text("network_status_rdma.json"))
    assert (default.name, default.default, default.ips) == ("pod-net-default", True, ("192.168.182.174",))
    assert (rail.name, rail.interface, rail.ips) == ("default/rail3-net1", "net1", ("10.89.104.5",))
    assert (rail.rdma_device, rail.pci_address, rail.default) == ("mlx5_6", "0000:06:00.3", False)


@reads("podinfo_annotations.txt")
def test_a_downward_api_file() -> None:
    found = container.parse_annotations(text("podinfo_annotations.txt"))
    assert found["build"] == "six"
    assert found["kubernetes.io/config.seen"] == "2015-06-27T02:52:34.173107408Z"
    assert len(found) == 4


# --- NCCL ------------------------------------------------------------------------------------------


@reads("nccl_conf.txt")
def test_the_user_guides_file() -> None:
    debug, interface = nccl_environment.parse_file(text("nccl_conf.txt"), "file:/etc/nccl.conf")
    assert (debug.name, debug.value, debug.line) == ("NCCL_DEBUG", "WARN", 1)
    assert (interface.value, interface.line) == ("=ens3f1", 2)
    assert nccl_environment.Selection.parse(interface.value).exact


@reads("nccl_tests_p5_launcher.txt")
def test_the_head_of_a_table_behind_a_launcher() -> None:
    (report,) = nccl_tests.parse(text("nccl_tests_p5_launcher.txt"))
    assert [(row.bytes, row.count, row.dtype, row.redop, row.root) for row in report.rows] == [
        (8, 2, "float", "sum", -1), (16, 4, "float", "sum", -1), (32, 8, "float", "sum", -1),
    ]  # fmt: skip
    third = report.rows[2]
    assert third.out_of_place is not None
    assert third.in_place is not None
    assert (third.out_of_place.time_us, third.in_place.time_us, third.in_place.wrong) == (23.55, 13.97, 0)
    assert report.average_busbw_gbytes_s is None
    assert not report.complete


@reads("nccl_tests_two_hosts_head.txt")
def test_the_devices_of_two_hosts() -> None:
    (report,) = nccl_tests.parse(text("nccl_tests_two_hosts_head.txt"))
    assert report.hosts == ("dgxh-3", "dgxh-6")
    assert [device.rank for device in report.devices] == list(range(10))
    assert report.devices[4].bus == "0003:00:05"
    assert report.devices[9].name == "NVIDIA H100 80GB HBM3"
    assert report.rows == ()


@reads("nccl_log_two_gpus.txt")
def test_a_log_without_infiniband() -> None:
    log = nccl_log.parse(text("nccl_log_two_gpus.txt"))
    assert log is not None
    assert (log.nccl_version, log.hosts) == ("2.16.5", ("Snorri",))
    assert [network.name for network in log.networks] == ["Socket"]


# --- host ------------------------------------------------------------------------------------------


@reads("chronyc_stratum1.txt")
def test_a_clock_that_is_58_ns_fast() -> None:
    status = clock_reading.parse_tracking(text("chronyc_stratum1.txt"))
    assert (status.synchronised, status.offset_s) == (True, 5.8e-08)


@reads("ip_addr_softroce.json", "route_softroce.txt")
def test_addresses_and_routes_of_the_guest() -> None:
    found = addresses.parse_ip(text("ip_addr_softroce.json"))
    listed = {link["ifname"] for link in json.loads(text("ip_addr_softroce.json"))}
    assert set(found) == listed >= {"lo", "eth2", "eth3", "mgmt0"}
    assert str(found["lo"][0]) == "127.0.0.1/8"
    assert "192.168.100.1/24" in [str(address) for address in found["eth2"]]
    assert addresses.default_routes(text("route_softroce.txt")) == ()


@reads("limits_softroce.txt", "status_softroce.txt", "cmdline_softroce.txt")
def test_the_guests_process() -> None:
    assert host.memlock_bytes(text("limits_softroce.txt")) > 0
    assert host.open_files(text("limits_softroce.txt")) >= 1024
    assert host.may_lock_memory(text("status_softroce.txt")), "root"
    assert host.allowed_cpus(text("status_softroce.txt")) == {0, 1, 2, 3}
    assert host.allowed_memory_nodes(text("status_softroce.txt")) == {0, 1}
    options = [str(option) for option in boot_options.parse(text("cmdline_softroce.txt"))]
    assert options[:2] == ["console=ttyS0", "quiet"]
    assert "mtu=9000" in options


@reads("find_libraries.txt", "find_newest.txt")
def test_files_by_find() -> None:
    link, name, file = versions.parse_libraries(text("find_libraries.txt"))
    assert (link.path, link.target) == ("/usr/lib/x86_64-linux-gnu/libz.so", "/lib/x86_64-linux-gnu/libz.so.1.2.13")
    assert (name.name, name.version, name.target) == ("libz.so.1", "", "libz.so.1.2.13")
    assert (file.size_bytes, file.version, file.target) == (121280, "1.2.13", "")
    assert checkpoint.newest(text("find_newest.txt")) == checkpoint.CheckpointEntry("Tokyo", 1756065323.0)


@reads("psutil_addresses.json")
def test_addresses_by_psutil() -> None:
    found = addresses.parse_psutil(json.loads(text("psutil_addresses.json")))
    assert [str(address) for address in found["lo"]] == ["127.0.0.1/8", "::1/128"]
    assert [str(address) for address in found["eth0"]] == ["192.0.2.2/24", "fd00::2/64", "fe80::fc:ff:fe00:1/64"]
    assert found["ifb0"] == ()


# --- tests of a pair -------------------------------------------------------------------------------


@reads("ib_write_bw_softroce.txt", "ib_read_bw_softroce.txt", "ib_write_lat_softroce.txt")
def test_perftest() -> None:
    wrote = perftest.parse_bandwidth(text("ib_write_bw_softroce.txt"))
    assert (wrote.size, wrote.messages, wrote.average_gbps, wrote.peak_gbps) == (65536, 200, 0.15, 0.32)
    assert perftest.parse_bandwidth(text("ib_read_bw_softroce.txt")).average_gbps == 0.072807
    took = perftest.parse_latency(text("ib_write_lat_softroce.txt"))
    assert (took.size, took.messages, took.typical_us, took.p99_us) == (2, 200, 1811.11, 20023.9)
    assert perftest.connected(text("ib_write_bw_softroce.txt"))
    with pytest.raises(ValueError, match="no table"):
        perftest.parse_bandwidth(text("ib_write_lat_softroce.txt"))


@reads("ib_write_bw_duration_mlx4.txt", "ib_write_bw_infiniband_sizes.txt")
def test_perftest_of_others() -> None:
    lasting = perftest.parse_bandwidth(text("ib_write_bw_duration_mlx4.txt"))
    assert (lasting.size, lasting.messages, lasting.average_gbps, lasting.peak_gbps) == (65536, 399000, 34.87, None)
    largest = perftest.parse_bandwidth(text("ib_write_bw_infiniband_sizes.txt"))
    assert (largest.size, largest.average_gbps) == (8, 0.16), "the last size"


@reads("ib_write_bw_bad_gid.txt", "ib_write_bw_memlock.txt", "ibv_rc_pingpong_bad_gid.txt")
def test_complaints_of_tests() -> None:
    assert perftest.cause(text("ib_write_bw_bad_gid.txt")) is perftest.PerftestError.QUEUE
    assert perftest.cause(text("ib_write_bw_memlock.txt")) is perftest.PerftestError.MEMORY
    assert perftest.cause(text("ibv_rc_pingpong_bad_gid.txt")) is perftest.PerftestError.GID


@reads("ibv_rc_pingpong_softroce.txt", "ibv_rc_pingpong_blocked.txt")
def test_pingpong() -> None:
    found = perftest.parse_pingpong(text("ibv_rc_pingpong_softroce.txt"))
    assert (found.bytes, found.messages, found.gbps, found.round_trip_us) == (1638400, 200, 0.00911, 7196.67)
    blocked = text("ibv_rc_pingpong_blocked.txt")
    assert perftest.cause(blocked) is None
    assert perftest.connected(blocked)
    with pytest.raises(ValueError, match="lacks the rate"):
        perftest.parse_pingpong(blocked)


@reads("ping_black_hole.txt", "ping_small.txt", "ping_too_long.txt", "ping_frag_needed.txt")
def test_ping() -> None:
    assert ping.parse(text("ping_black_hole.txt")) == ping.Ping(3, 0, None, None, "")
    assert ping.parse(text("ping_small.txt")) == ping.Ping(3, 3, None, None, "")
    assert ping.parse(text("ping_too_long.txt")) == ping.Ping(3, 0, 9000, None, "")
    assert ping.parse(text("ping_frag_needed.txt")) == ping.Ping(3, 0, 1500, 1500, "")


@reads("proc_net_tcp.txt")
def test_listening_sockets() -> None:
    assert listening.listening(text("proc_net_tcp.txt")) == {22}


# --- the host's settings ---------------------------------------------------------------------------


@reads("cpuinfo_head.txt")
def test_cpu() -> None:
    assert system_settings.cpu(text("cpuinfo_head.txt")) == system_settings.Cpu("AMD EPYC", "0x1000065")


@reads("meminfo.txt")
def test_memory() -> None:
    assert system_settings.memory_gib(text("meminfo.txt")) == pytest.approx(24684084 / 2**20)


@reads("transparent_hugepage.txt")
def test_huge_pages() -> None:
    assert system_settings.chosen(text("transparent_hugepage.txt")) == "madvise"


@reads("mac_address.txt")
def test_mac() -> None:
    assert unique_ids.mac(text("mac_address.txt")) == "02:fc:00:00:00:01"
