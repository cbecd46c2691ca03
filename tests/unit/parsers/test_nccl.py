"""NCCL's environment and log, and nccl-tests reports: formats by version, launcher prefixes, cuts, noise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts import nccl_environment
from preflight.facts.nccl_environment import NcclEnvironment, Selection, strtoll
from preflight.parsers import nccl_log
from preflight.parsers.nccl_tests import text as nccl_tests
from tests.support import paths

DATA = paths.DATA / "nccl-tests"
OK = (DATA / "ok_8gpu.txt").read_text()

# --- environment -----------------------------------------------------------------------------------


def environment(values: dict[str, str], user: Any = None, etc: Any = None) -> NcclEnvironment:
    missing = {"status": "missing", "why": "No such file or directory"}
    records = {
        "env:process": {"status": "ok", "value": values},
        "file:~/.nccl.conf": missing if user is None else user,
        "file:/etc/nccl.conf": missing if etc is None else etc,
    }
    return nccl_environment.read(Evidence("n", "", records))


def text(content: str) -> dict[str, Any]:
    return {"status": "ok", "out": content}


def test_sources_in_ncclss_order() -> None:
    env = environment(
        {"NCCL_A": "1"}, user=text("NCCL_A=2\nNCCL_B=2\n"), etc=text("# NCCL_C=0\nNCCL_B=3\nNCCL_C==3 \n")
    )
    where = {s.name: (s.value, s.source, s.line) for s in env.settings}
    assert where == {
        "NCCL_A": ("1", "env:process", None),
        "NCCL_B": ("2", "file:~/.nccl.conf", 2),
        "NCCL_C": ("=3 ", "file:/etc/nccl.conf", 3),
    }
    setting = env.get("NCCL_C")
    assert setting is not None
    assert setting.where == "/etc/nccl.conf line 3"
    assert setting.text == "NCCL_C='=3 '"
    assert not env.unreadable


def test_an_empty_variable_keeps_the_file_out() -> None:
    env = environment({"NCCL_IB_DISABLE": ""}, etc=text("NCCL_IB_DISABLE=1\n"))
    assert env.integer("NCCL_IB_DISABLE") is None


def test_first_line_of_a_file_wins() -> None:
    assert environment({}, etc=text("NCCL_X=1\nNCCL_X=2\n")).integer("NCCL_X") == 1


def test_conf_file_replaces_the_users_file() -> None:
    records = {
        "env:process": {"status": "ok", "value": {"NCCL_CONF_FILE": "/site/nccl.conf"}},
        "file:~/.nccl.conf": text("NCCL_X=1\n"),
        "file:/etc/nccl.conf": text("NCCL_Y=1\n"),
    }
    env = nccl_environment.read(Evidence("n", "", records))
    assert env.get("NCCL_X") is None
    assert env.integer("NCCL_Y") == 1
    assert list(env.unreadable) == ["file:/site/nccl.conf"]


def test_unreadable_sources() -> None:
    env = environment({}, user={"status": "denied", "why": "Permission denied"})
    assert list(env.unreadable) == ["file:~/.nccl.conf"]
    with pytest.raises(EvidenceError, match="env:process"):
        nccl_environment.read(Evidence("n", "", {"env:process": {"status": "timeout"}}))
    with pytest.raises(EvidenceError, match="not names and values"):
        nccl_environment.read(Evidence("n", "", {"env:process": {"status": "ok", "value": [1]}}))
    with pytest.raises(EvidenceError, match="redacted"):
        environment({"NCCL_IB_HCA": "[redacted]"}).text("NCCL_IB_HCA")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("1", 1), ("0", 0), ("true", 0), ("yes", 0), ('"1"', 0), ("4M", 4), ("010", 8), ("0x10", 16), ("0x", 0),
        (" 7", 7), ("-1", -1), ("+2", 2), ("1.5", 1), ("09", 0), ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None), ("1\r", 1), (" ", 0),
    ],
)  # fmt: skip
def test_integers_as_strtoll(value: str, number: int | None) -> None:
    assert strtoll(value) == number


D = [("mlx5_0", 1), ("mlx5_1", 1), ("mlx5_10", 1), ("mlx5_11", 1), ("mlx5_2", 1), ("mlx5_2", 2), ("mlx5_bond_0", 1)]
I = ["lo", "eth0", "eth0.100", "eth1", "ib0", "docker0"]  # noqa: E741


@pytest.mark.parametrize(
    ("value", "ports"),
    [
        ("mlx5_1", "mlx5_1:1 mlx5_10:1 mlx5_11:1"),
        ("=mlx5_1", "mlx5_1:1"),
        ("^mlx5_1", "mlx5_0:1 mlx5_2:1 mlx5_2:2 mlx5_bond_0:1"),
        ("^=mlx5_1", "mlx5_0:1 mlx5_10:1 mlx5_11:1 mlx5_2:1 mlx5_2:2 mlx5_bond_0:1"),
        ("mlx5_2:2", "mlx5_2:2"),
        ("=mlx5_2:1,mlx5_0", "mlx5_0:1 mlx5_2:1"),
        ("^mlx5_2:2", "mlx5_0:1 mlx5_1:1 mlx5_10:1 mlx5_11:1 mlx5_2:1 mlx5_bond_0:1"),
        ("=mlx5_1,mlx5", "mlx5_1:1"),
        ("mlx5_0, mlx5_2", "mlx5_0:1"),
        ("MLX5_0", ""),
        ("=^mlx5_0", ""),
        ("mlx5_0:x", ""),
        ("^", ""),
        ("=mlx5_2::0:0", "mlx5_2:1 mlx5_2:2"),
        ("", " ".join(f"{d}:{p}" for d, p in D)),
        ("=", " ".join(f"{d}:{p}" for d, p in D)),
        ("mlx5_0:1:3:0,,mlx5_2:2:1", "mlx5_0:1 mlx5_2:2"),
    ],
)
def test_hca_list_worked_examples(value: str, ports: str) -> None:
    selection = Selection.parse(value)
    assert [f"{d}:{p}" for d, p in D if selection.matches(d, p)] == ports.split()


@pytest.mark.parametrize(
    ("value", "names"),
    [("eth0", "eth0 eth0.100"), ("^docker,lo", "eth0 eth0.100 eth1 ib0"), ("=eth0:1,eth1", "eth0 eth1")],
)
def test_interface_list_worked_examples(value: str, names: str) -> None:
    selection = Selection.parse(value)
    assert [name for name in I if selection.matches_name(name)] == names.split()


def test_rails_before_2_30_7() -> None:
    old = Selection.parse("=mlx5_2::0:0", empty_port_is_any=False)
    assert not any(old.matches(d, p) for d, p in D)


def test_values_that_count_as_unset() -> None:
    for value in ("", "=", ","):
        assert environment({"NCCL_IB_HCA": value}).hca_selection is None
    assert environment({"NCCL_SOCKET_IFNAME": "e"}).socket_selection is None
    assert environment({}).socket_selection is None
    assert environment({"NCCL_IB_HCA": "^"}).hca_selection == Selection((), exclude=True)


def _plainly(value: str, device: str, port: int) -> bool:
    """Read a list one character at a time, like a C program."""
    rest, negated, exact = value, False, False
    if rest[:1] == "^":
        negated, rest = True, rest[1:]
    if rest[:1] == "=":
        exact, rest = True, rest[1:]
    listed, some = False, False
    for element in rest.split(","):
        name = element.split(":")[0]
        if name == "":
            continue
        some = True
        same = device == name if exact else device[: len(name)] == name
        wanted = element.split(":")[1] if ":" in element else ""
        if wanted and wanted != "-1":
            digits = ""
            for character in wanted:
                if character not in "0123456789":
                    break
                digits += character
            same = same and int(digits or "0") == port
        listed = listed or same
    return (listed if some else True) is not negated


ITEMS = st.lists(
    st.sampled_from(
        ["mlx5_1", "mlx5_2", "mlx5", "m", "", " mlx5_0", "mlx5_2:2", "mlx5_2:1:0:0", "mlx5_0:x", "=a", "^b"]
    ),
    max_size=4,
).map(",".join)


@given(st.sampled_from(["", "^", "=", "^=", "=^"]), ITEMS, st.sampled_from(D))
def test_list_against_a_plain_reading(mark: str, items: str, port: tuple[str, int]) -> None:
    assert Selection.parse(mark + items).matches(*port) is _plainly(mark + items, *port)


@given(st.text(max_size=60))
def test_any_list_can_be_read(value: str) -> None:
    selection = Selection.parse(value)
    assert selection.matches_name("eth0") in (True, False)
    assert selection.matches("mlx5_0", 1) in (True, False)


# --- NCCL's log ------------------------------------------------------------------------------------


def info(message: str, host: str = "gpu001") -> str:
    return f"{host}:4001:4101 [0] NCCL INFO {message}"


def log(*messages: str) -> nccl_log.NcclLog:
    found = nccl_log.parse("\n".join(info(message) for message in messages))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("message", "network", "gpudirect"),
    [
        ("Ring 00 : 0 -> 8 [send] via NET/IB/0/GDRDMA", "IB", True),  # 2.4
        ("Ring 01 : 3[3] -> 8[0] [receive] via NET/Socket/0", "Socket", False),
        ("Channel 00 : 2[c1000] -> 0[81000] [receive] via NET/IB/5/GDRDMA", "IB", True),  # 2.7
        ("Channel 01/0 : 9[1b000] -> 0[1b000] [receive] via NET/IB/0(8)/GDRDMA/Shared", "IB", True),  # 2.12, PXN
        ("Channel 03/0 : 47[7] -> 39[7] [receive] via NET/IBext_v8/2", "IBext_v8", False),
        ("Channel 00/0 : 8[0] -> 0[0] [receive] via NET/AWS Libfabric/2/GDRDMA/Shared", "AWS Libfabric", True),
        ("Channel 00/1 : 8[0] -> 0[0] [send] via NET/IB/0/GDRDMA(PCI)", "IB", True),  # 2.26
        ("Channel 00/0 : 8[0] -> 0[0] [send] via NET/GPUDirectTCPX_v7/0/GDRDMA", "GPUDirectTCPX_v7", True),
    ],
)
def test_network_channels(message: str, network: str, gpudirect: bool) -> None:
    found = log(message, message)
    assert [(c.network, c.gpudirect, c.count, c.first.number) for c in found.channels] == [(network, gpudirect, 2, 1)]
    assert found.network_names == (network,)


@pytest.mark.parametrize(
    ("via", "name"),
    [
        ("P2P/CUMEM/read", "P2P/CUMEM"),
        ("P2P/IPC", "P2P/IPC"),
        ("P2P/direct pointer", "P2P/direct pointer"),
        ("SHM/direct/direct", "SHM"),
        ("direct shared memory", "SHM"),
        ("P2P/indirect/3[1c000]", "P2P/indirect"),
    ],
)
def test_channels_inside_a_node(via: str, name: str) -> None:
    found = log(f"Channel 00/0 : 0[0] -> 1[1] via {via}")
    assert [use.name for use in found.intra_node] == [name]
    assert not found.channels


@pytest.mark.parametrize(
    ("rest", "devices"),
    [
        ("[0]mlx5_0:1/IB [1]mlx5_1:1/RoCE ; OOB eth0:10.0.0.1<0>", "mlx5_0:1/IB mlx5_1:1/RoCE"),
        ("[0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE} [RO]; OOB eth0:10.0.0.1<0>", "mlx5_2:1/RoCE mlx5_3:1/RoCE"),
        ("[0]mlx5_0:1/IB/SHARP [RO]; OOB ib0:10.0.0.1<0>", "mlx5_0:1/IB"),
        ("[0]mlx5_0:1:0:1/RoCE [1]mlx5_1:1::1/IB [RO]; OOB eth0:10.0.0.1<0>", "mlx5_0:1/RoCE mlx5_1:1/IB"),
        ("[RO]; OOB eth0:10.0.0.1<0>", ""),
    ],
)
def test_devices_of_net_ib(rest: str, devices: str) -> None:
    found = log(f"NET/IB : Using {rest}")
    assert [f"{d.name}:{d.port}/{'RoCE' if d.roce else 'IB'}" for d in found.ib_devices] == devices.split()


@pytest.mark.parametrize(
    ("message", "network"),
    [
        ("Using network IB", "IB"),
        ("Using network AWS Libfabric", "AWS Libfabric"),
        ("Assigned NET plugin Socket to comm", "Socket"),
        ("Using network FastSocket", "FastSocket"),
    ],
)
def test_chosen_network(message: str, network: str) -> None:
    assert log(message).network_names == (network,)


def test_capability_is_no_use() -> None:
    found = log(
        "NET/Plugin: Loaded net plugin IBext_v8 (v8)",
        "P2P plugin IBext_v8",
        "NET/Socket : Using [0]eth0:10.0.0.1<0>",
        "NET/Socket: Using 4 threads and 1 sockets per thread",
        "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
        "NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'",
        "Connected all rings, use ring PXN 0 GDR 1",
        "DMA-BUF is available on GPU device 0",
    )
    assert found.network_names == ()
    assert found.socket_interfaces == ("eth0",)
    assert not found.gpudirect_disabled
    assert found.nnodes is None


def test_before_2_6_4_tcp_is_initialised_only_where_it_is_used() -> None:
    text = "NCCL version 2.4.8+cuda10.0\n" + info("NET/Socket : Using [0]eth0:10.0.0.1<0>")
    found = nccl_log.parse(text)
    assert found is not None
    assert found.network_names == ("Socket",)


def test_obstacles_earliest_first() -> None:
    found = log(
        "NCCL_SOCKET_IFNAME set by environment to eth0",
        "NCCL_IB_DISABLE set by environment to 1.",
        "NET/IB : No device found.",
        "NET/IB : No device found.",
    )
    assert [line.number for line in found.obstacles] == [2, 3]
    assert found.no_device_found is not None
    assert [(v.name, v.value) for v in found.environment] == [("NCCL_SOCKET_IFNAME", "eth0"), ("NCCL_IB_DISABLE", "1")]


def test_nodes_and_ranks() -> None:
    assert log("comm 0x55 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0").nnodes == 2
    everyone = [f"comm 0x5{r} rank {r} nranks 2 cudaDev {r} nvmlDev {r} busId 1000 - Init COMPLETE" for r in (0, 1)]
    assert (log(*everyone).nnodes, log(*everyone).nranks) == (1, 2)
    assert log(everyone[0]).nnodes is None
    two = nccl_log.parse(info("Using network IB") + "\n" + info("Using network IB", "gpu002"))
    assert two is not None
    assert (two.nnodes, two.hosts) == (2, ("gpu001", "gpu002"))


def test_warnings_with_time_and_function() -> None:
    text = (
        "\n[2026-05-04 07:21:38] gpu001:4001:4101 [0] transport/net_ib.cc:12 (ncclIbInit) NCCL WARN one\n"
        "gpu002:1:2 [3] socket.cc:9 NCCL WARN two\n"
    )
    found = nccl_log.parse(text)
    assert found is not None
    assert [(w.number, w.host, w.message) for w in found.warnings] == [(2, "gpu001", "one"), (3, "gpu002", "two")]


LAUNCHED = {
    "mpirun --tag-output": "[1,0]<stdout>:{}",
    "prterun --tag-output": "[prterun-host-1234@1,0]<stdout>: {}",
    "mpirun --timestamp-output": "Mon Jan  1 00:00:00 2024[1,0]<stdout>:{}",
    "srun --label": "12: {}",
    "pdsh": "gpu001: {}",
    "torchrun": "[rank0]: {}",
    "torchrun --tee": "[default0]:{}",
    "Ray": "(RayTrainWorker pid=3590, ip=10.0.0.1) {}",
    "Ray in colour": "\x1b[36m(Worker pid=3590, ip=10.0.0.1)\x1b[0m {}",
    "Ray after a terminal ate ESC": "[36m(Worker pid=3590, ip=10.0.0.1)[0m {}",
    "kubectl --prefix": "[pod/job-0/main] {}",
    "docker compose": "trainer-1  | {}",
    "CloudWatch": " | 2024-01-01T00:00:00.000Z {}",
    "RFC 3339": "2024-01-01T00:00:00.000Z {}",
    "mail": "> > {}",
    "indented": "    {}",
    "CRLF": "{}\r",
    "BOM": "\ufeff{}",
    "progress bar": "10%\r{}",
}


@pytest.mark.parametrize("form", LAUNCHED.values(), ids=LAUNCHED)
def test_log_behind_a_launcher(form: str) -> None:
    lines = [
        info("NET/IB : No device found."),
        info("Using network Socket"),
        info("comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1"),
    ]
    found = nccl_log.parse("\n".join(form.format(line) for line in lines))
    assert found is not None
    assert found.hosts == ("gpu001",)
    assert found.network_names == ("Socket",)
    assert found.nnodes == 2
    assert found.networks[0].first.number == 2


def test_log_without_a_prefix_and_as_html() -> None:
    found = nccl_log.parse(
        "[3] NCCL INFO Using network IB\n"
        "<host>:XX:XX [3] NCCL INFO Channel 00/0 : 8[0] -&gt; 0[0] [send] via NET/IB/0\n"
    )
    assert found is not None
    assert found.hosts == ()
    assert [c.network for c in found.channels] == ["IB"]


def test_prose_is_no_log() -> None:
    assert nccl_log.parse("") is None
    assert nccl_log.parse("Look for the NCCL INFO lines, such as Using network Socket.") is None
    assert nccl_log.parse(OK) is None


def test_a_line_written_into_a_row_names_no_false_host() -> None:
    row = "           8             2     float     sum      -1" + info("Using network IB")
    found = nccl_log.parse(row + "\n" + info("Using network IB"))
    assert found is not None
    assert found.hosts == ("gpu001",)


# --- nccl-tests ------------------------------------------------------------------------------------


def one(text: str) -> nccl_tests.Report:
    (report,) = nccl_tests.parse(text)
    return report


def same(report: nccl_tests.Report, other: nccl_tests.Report) -> bool:
    def essence(r: nccl_tests.Report) -> object:
        rows = [(x.bytes, x.count, x.dtype, x.redop, x.root, x.out_of_place, x.in_place) for x in r.rows]
        return (
            rows,
            r.average_busbw_gbytes_s,
            r.out_of_bounds,
            r.nranks,
            r.hosts,
            r.collective,
            r.complete,
            r.cut_rows,
        )

    return essence(report) == essence(other)


PLAIN = one(OK)


def best(report: nccl_tests.Report) -> float:
    found = report.best()
    return found.busbw_gbytes_s if found else 0.0


def test_plain_report() -> None:
    assert (PLAIN.collective, PLAIN.nranks, PLAIN.hosts, PLAIN.version) == ("all_reduce", 8, ("vm",), "2.19.6")
    assert len(PLAIN.rows) == 31
    assert PLAIN.average_busbw_gbytes_s == 130.422
    assert best(PLAIN) == 349.83
    assert (PLAIN.out_of_bounds, PLAIN.out_of_bounds_ok, PLAIN.validated, PLAIN.complete) == (0, True, True, True)
    assert PLAIN.rows[-1].line == 48
    assert (PLAIN.first_line, PLAIN.last_line) == (1, 52)


@pytest.mark.parametrize("form", LAUNCHED.values(), ids=LAUNCHED)
def test_report_behind_a_launcher(form: str) -> None:
    assert same(one("\n".join(form.format(line) for line in OK.split("\n"))), PLAIN)


def test_report_with_socket_lines_between() -> None:
    lines = OK.split("\n")
    noise = info("NET/Socket : Using [0]eth0:10.0.0.1<0>", "vm")
    text = "\n".join(line + "\n" + noise for line in lines)
    assert same(one(text), PLAIN)
    found = nccl_log.parse(text + "\n" + info("Channel 00/0 : 8[0] -> 0[0] [send] via NET/Socket/0"))
    assert found is not None
    assert found.network_names == ("Socket",)


def test_one_wrong_value() -> None:
    text = OK.replace("values : 0 OK", "values : 1 FAILED").replace("349.83       0\n", "349.83       1\n", 1)
    report = one(text)
    assert (report.out_of_bounds, report.out_of_bounds_ok) == (1, False)
    assert [row.bytes for row in report.wrong_rows] == [8589934592]


def test_another_type() -> None:
    report = one(OK.replace("   float", "bfloat16"))
    assert [row.dtype for row in report.rows] == ["bfloat16"] * 31
    assert best(report) == 349.83


def test_average_is_not_rounded() -> None:
    assert one(OK.replace("130.422", "119.96 ")).average_busbw_gbytes_s == 119.96


def test_two_runs_in_one_file() -> None:
    first, second = nccl_tests.parse(OK + (DATA / "wrong.txt").read_text())
    assert same(first, PLAIN)
    assert (len(second.rows), second.out_of_bounds, second.first_line) == (2, 2, 56)
    assert len(nccl_tests.parse(OK * 3)) == 3


def test_cut_before_the_average() -> None:
    report = one(OK[: OK.index("# Avg")])
    assert (report.complete, report.average_busbw_gbytes_s, len(report.rows)) == (False, None, 31)


def test_an_average_at_the_very_end_of_a_text() -> None:
    table = "1048576   262144   float   sum   -1   86.63   12.10   18.16   0   94.39   11.11   16.66   0"
    footer = "\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : "
    assert one(table + footer + "17.41").average_busbw_gbytes_s == 17.41
    assert one(table + footer + "17").average_busbw_gbytes_s is None
    assert one(table + footer + "17 ").average_busbw_gbytes_s == 17


OLD = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid   1234 on     node1 device  0 [0x10] Tesla V100-SXM2-16GB
#   Rank  1 Pid   1234 on     node1 device  1 [0x20] Tesla V100-SXM2-16GB
#
#                                                     out-of-place                       in-place
#       size         count    type   {left}     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
{row}
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 1.5
#
"""


@pytest.mark.parametrize(
    ("left", "row", "redop", "root"),
    [
        ("redop", "8 2 float sum 20.1 4.00 7.00 2e-07 20.2 4.00 7.00 2e-07", "sum", None),  # all_reduce
        ("", "8 2 float 20.1 4.00 7.00 0e+00 20.2 4.00 7.00 0e+00", None, None),  # all_gather
        ("root", "8 2 float 0 20.1 4.00 7.00 0e+00 20.2 4.00 7.00 0e+00", None, 0),  # broadcast
        ("redop root", "8 2 float sum 3 20.1 4.00 7.00 0e+00 20.2 4.00 7.00 0e+00", "sum", 3),  # reduce
        ("redop", "8 2 float 20.1 4.00 7.00 0e+00 20.2 4.00 7.00 N/A", None, None),  # alltoall leaves redop blank
    ],
)
def test_tables_up_to_2_12(left: str, row: str, redop: str | None, root: int | None) -> None:
    report = one(OLD.format(left=left, row=row))
    (found,) = report.rows
    assert (found.redop, found.root, found.bytes, found.count) == (redop, root, 8, 2)
    assert found.out_of_place is not None
    assert found.in_place is not None
    assert (found.out_of_place.time_us, found.in_place.busbw_gbytes_s) == (20.1, 7.0)
    assert found.out_of_place.wrong is None
    assert found.out_of_place.max_error is not None
    assert report.validated
    assert report.nranks == 2
    assert report.device_names == ("Tesla V100-SXM2-16GB",)


HEAD = "#     size     count    type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
PREAMBLE = "       128        32   float     sum      -1"
FIRST, SECOND = "    20.21    0.01    0.02       0", "    20.23    0.03    0.04       0"
ROW = PREAMBLE + FIRST + SECOND


@pytest.mark.parametrize(
    ("head", "row"),
    [
        (HEAD, ROW),
        (HEAD + " timestamp", ROW + " 2026-01-01 12:00:00"),
        (HEAD + " #iters", ROW + " 20"),
        (HEAD.replace(" time", " cputime"), ROW),
        (HEAD.replace("#wrong", "#wrong i_min i_max i_p99 i_cv%"), ROW.replace("       0", "       0 1 2 3 4.5")),
        (HEAD, ROW.replace("128", "1099511627776").replace("20.21", "1.2e+07")),
        (HEAD, ROW.replace("128", "  0").replace("0.02", " nan").replace("0.04", " inf")),
    ],
)
def test_columns(head: str, row: str) -> None:
    (found,) = one(f"{head}\n{row}\n").rows
    assert found.root == -1
    assert found.out_of_place is not None
    assert found.in_place is not None
    assert (found.out_of_place.wrong, found.in_place.wrong) == (0, 0)
    assert (found.out_of_place.algbw_gbytes_s, found.in_place.algbw_gbytes_s) == (0.01, 0.03)


def test_version_1_prints_milliseconds() -> None:
    text = (
        "nThread 1 nGpus 8 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 validation: 1\n"
        "#   Rank  0 on     node1 device  0 [0x10] Tesla P100\n"
        "#     bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res\n"
        "     1048576      262144   float     sum    0.412   2.54   4.45    2e-07    0.411   2.55   4.46    2e-07\n"
        " Out of bounds values : 0 OK\n Avg bus bandwidth    : 4.455\n"
    )
    (row,) = one(text).rows
    assert row.out_of_place is not None
    assert row.out_of_place.time_us == 412
    assert one(text).complete


def test_not_validated() -> None:
    report = one(
        f"{HEAD}\n{ROW.replace('       0', '     N/A')}\n# Out of bounds values : 0 OK\n# Avg bus bandwidth : 1 \n"
    )
    assert report.validated is False
    assert report.out_of_bounds == 0


def test_wrong_counts_above_a_million() -> None:
    (row,) = one(f"{HEAD}\n{ROW.replace('       0', ' 1.04858e+06', 1)}\n").rows
    assert row.out_of_place is not None
    assert row.out_of_place.wrong == 1048580


def test_rows_that_were_removed() -> None:
    report = one(
        f"{HEAD}\n{ROW}\n      256   64  float  sum  -1  XXXXX XXXXX XXXXX 0 XXXXX XXXXX XXXXX 0\n...\n{ROW}\n"
    )
    assert len(report.rows) == 2
    assert [(cut.line, cut.bytes) for cut in report.cut_rows] == [(3, 256), (4, None)]


def test_row_split_by_a_line_of_nccl() -> None:
    preamble, first, second = PREAMBLE, FIRST, SECOND
    noise = info("Channel 00/0 : 8[0] -> 0[0] [send] via NET/IB/0")
    for text in (
        f"{HEAD}\n{preamble}{noise}\n{first}{second}\n",
        f"{HEAD}\n{preamble}{first}{noise}\n{second}\n",
        f"{HEAD}\n{preamble}{noise}\n{noise}\n{first}{noise}\n{second}\n",
        f"{HEAD}\n{preamble}NCCL version 2.21.5+cuda12.4\n{first}{second}\n",
    ):
        report = one(text)
        assert [row.halves for row in report.rows] == [one(f"{HEAD}\n{ROW}\n").rows[0].halves], text
        assert not report.cut_rows


def test_run_that_ended_in_a_row() -> None:
    half = one(f"{HEAD}\n{ROW}\n{(PREAMBLE + FIRST).replace('128', '256')}\n")
    assert half.rows[1].in_place is None
    assert [cut.bytes for cut in half.cut_rows] == [256]
    none = one(f"{HEAD}\n{ROW}\n{PREAMBLE.replace('128', '256')}GPU1: Test NCCL failure all_reduce.cu:9 'x'\n")
    assert len(none.rows) == 1
    assert [cut.bytes for cut in none.cut_rows] == [256]
    assert [(f.host, f.text) for f in none.failures] == [("GPU1", "Test NCCL failure all_reduce.cu:9 'x'")]
    assert none.collective == "all_reduce"


@pytest.mark.parametrize(
    ("file", "failure"),
    [
        ("syserr.txt", "Test NCCL failure"),
        ("timeout.txt", "Test timeout (3s)"),
        ("mpi4_rank_fails.txt", "Test NCCL failure"),
    ],
)
def test_failures(file: str, failure: str) -> None:
    report = one((DATA / file).read_text())
    assert [f.text.startswith(failure) for f in report.failures] == [True]
    assert not report.complete
    assert report.rows == ()


def test_json() -> None:
    report = one((DATA / "json_2gpu.json").read_text())
    assert (report.collective, report.nranks, report.hosts, report.nccl_version) == ("all_reduce", 2, ("vm",), "2.21.5")
    assert [(row.line, row.bytes, row.root) for row in report.rows] == [(48, 1048576, -1), (69, 2097152, -1)]
    assert (report.out_of_bounds_ok, report.average_ok, report.complete) == (True, None, True)
    assert report.failures == ()


def test_four_hosts() -> None:
    report = one((DATA / "mpi4_ok.txt").read_text())
    assert (report.nranks, report.nnodes, report.groups) == (4, 4, 1)


def test_device_list_that_is_cut() -> None:
    report = one(
        OK.replace("#  Rank  7 Group  0 Pid  20837 on         vm device  7 [0000:80:00] NVIDIA STUB-H100", "...")
    )
    assert (report.nranks, report.nnodes) == (None, None)


def test_binary_without_mpi() -> None:
    tagged = "\n".join(f"[1,{rank}]<stdout>:{line}" for line in OK.split("\n") for rank in range(2))
    assert [same(report, PLAIN) for report in nccl_tests.parse(tagged)] == [True, True]
    device = "#  Rank  0 Group  0 Pid  {} on vm device  0 [0000:10:00] NVIDIA X\n"
    report = one(device.format(1) + device.format(2) + f"{HEAD}\n{ROW}\n{ROW}\n")
    assert (report.copies, report.nranks) == (2, 1)


def test_collective_of_an_unnamed_table() -> None:
    unnamed = "\n".join(line for line in OK.split("\n") if "Collective" not in line)
    assert (one(unnamed).collective, one(unnamed).collective_printed) == ("all_reduce", False)
    named = "+ mpirun ./build/all_gather_perf -b 8\n" + unnamed
    assert one(named).collective == "all_reduce", "the command stands before another table: this one has its factor"
    assert one(unnamed.replace("sum", "none")).collective is None


def test_no_report() -> None:
    assert nccl_tests.parse("") == ()
    assert nccl_tests.parse("we use 8 2 float tensors") == ()
    assert nccl_tests.parse('{"results": [], "config": 3}') == ()
    assert nccl_tests.parse(info("Using network IB")) == ()


@given(st.integers(0, len(OK)))
def test_any_prefix_of_a_report(length: int) -> None:
    reports = nccl_tests.parse(OK[:length])
    assert len(reports) <= 1
    for report in reports:
        assert report.rows == PLAIN.rows[: len(report.rows)] or report.cut_rows
        assert best(report) <= best(PLAIN)
        average = report.average_busbw_gbytes_s
        assert average is None or average == pytest.approx(130.422, abs=0.011)
        assert report.out_of_bounds in (None, 0)


@given(st.lists(st.tuples(st.integers(0, 55), st.sampled_from([
    info("Channel 00/0 : 8[0] -> 0[0] [send] via NET/Socket/0"), "", "Warning: Permanently added 'n1' to the list.",
    "Authorization required, but no authorization protocol specified", "NCCL version 2.21.5+cuda12.4",
    "[W socket.cpp:426] x",
])), max_size=8))  # fmt: skip
def test_noise_changes_no_row(noise: list[tuple[int, str]]) -> None:
    lines = OK.split("\n")
    for position, text in noise:
        lines.insert(position, text)
    assert same(one("\n".join(lines)), PLAIN)


PIECES = st.lists(
    st.one_of(
        st.text(max_size=20),
        st.sampled_from([*OK.split("\n"), HEAD, ROW, PREAMBLE, info("Using network IB"), info("rank 0 nranks 2")]),
        st.sampled_from(["{", "\r", "\x1b[0m"]),
    ),
    max_size=12,
)  # fmt: skip


@given(PIECES, st.sampled_from(["\n", " ", ""]))
@settings(max_examples=300)
def test_any_text_can_be_read(pieces: list[str], glue: str) -> None:
    text = glue.join(pieces)
    nccl_log.parse(text)
    nccl_tests.parse(text)


JSON_NAMES = [
    *("config", "results", "devices", "size", "count", "type", "rank", "hostname", "out_of_place", "time", "alg_bw"),
    *("bus_bw", "nwrong", "out_of_bounds", "args", "errors", "nccl_version", "ngpus"),
]


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(JSON_NAMES), inner),
    )
)
def test_any_json_can_be_read(value: object) -> None:
    nccl_tests.parse(json.dumps({"config": {}, "results": [value], "out_of_bounds": value, "args": value}))
    nccl_tests.parse(json.dumps({"config": {"devices": [value], "nthreads": 1}, "results": value}))
