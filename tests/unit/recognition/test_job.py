"""Pasted texts of jobs: settings in many spellings, printed dumps, broken tables, prose."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from preflight.parsers import nccl_log, setting_lines
from preflight.parsers.nccl_tests import text as nccl_tests
from preflight.parsers.torch import parse, printed_dump, watchdog
from preflight.recognition import open_sources, read
from preflight.recognition.detector import TextPart
from preflight.textprep import prose
from tests.support import paths

RECORDED = paths.DATA / "outside"


def parts(text: str, folder: Path) -> list[TextPart]:
    path = folder / "pasted.txt"
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return read(next(open_sources((str(path),))))


# --- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "after", "value"),
    [
        ("export NCCL_IB_TIMEOUT=22 # longer", "", "22"),
        ("export NCCL_IB_HCA='mlx5_0,mlx5_1';", "", "mlx5_0,mlx5_1"),
        ("export NCCL_DEBUG_SUBSYS=INIT,NET && python train.py", "", "INIT,NET"),
        ('  -x NCCL_IB_HCA="^=mlx5_0" \\', "", "^=mlx5_0"),
        ("-e NCCL_DEBUG=INFO \\", "", "INFO"),
        ("ENV NCCL_DEBUG INFO", "", "INFO"),
        ("setenv NCCL_DEBUG INFO", "", "INFO"),
        ('setenv("NCCL_DEBUG", "INFO")', "", "INFO"),
        ('os.environ["NCCL_IB_GID_INDEX"] = "3"  # RoCE', "", "3"),
        ("NCCL_SOCKET_IFNAME: eth0", "", "eth0"),
        ('"NCCL_SOCKET_IFNAME": "eth0",', "", "eth0"),
        ('"NCCL_SOCKET_IFNAME=eth0",', "", "eth0"),
        ("- name: NCCL_IB_HCA", "  value: ^=mlx5_0,mlx5_4", "^=mlx5_0,mlx5_4"),
        ('- {name: NCCL_IB_HCA, value: "mlx5"}', "", "mlx5"),
        ('{"name": "NCCL_IB_HCA", "value": "mlx5"},', "", "mlx5"),
    ],
)
def test_a_setting_as_people_spell_it(line: str, after: str, value: str) -> None:
    found = setting_lines.on_lines(line, after)
    assert found is not None
    assert found.value == value


@pytest.mark.parametrize(
    "line", ["NCCL_DEBUG: set it to INFO", "- NCCL_IB_DISABLE=0 (RoCE; =1 is slower)", "NCCL_DEBUG"]
)
def test_a_sentence_is_no_setting(line: str) -> None:
    assert setting_lines.on_lines(line, "") is None


@pytest.mark.parametrize(
    "value", ["$IFACE", "${HCA:-mlx5}", "$(show_gids)", "{{ .Values.hca }}", "<interface>", "[0|1]"]
)
def test_placeholders_are_not_judged(value: str, tmp_path: Path) -> None:
    (part,) = parts(f"export NCCL_IB_GID_INDEX={value}\nexport NCCL_DEBUG=WARN\n", tmp_path)
    assert part.kind == "nccl-env"
    assert part.taken.facts["env"]["NCCL_DEBUG"] == "WARN"
    assert [one["status"] for one in part.findings] == ["pass"]


def test_a_command_is_read_where_there_is_nothing_else(tmp_path: Path) -> None:
    command = "docker run -e NCCL_IB_DISABLE=1 -e NCCL_ALGO=Ring \\\n  --env NCCL_DEBUG=INFO image\n"
    (part,) = parts(f"I start it so:\n\n{command}", tmp_path)
    assert part.taken.facts["env"] == {"NCCL_IB_DISABLE": "1", "NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO"}
    assert [finding["status"] for finding in part.findings] == ["warn", "warn"]
    assert "NCCL_IB_DISABLE=1 in the command on line 3 (not seen in force)" in part.findings[1]["message"]
    assert [one.kind for one in parts(f"{command}NCCL version 2.21.5+cuda12.4\n", tmp_path)] == [
        "nccl-env", "nccl-log"
    ]  # fmt: skip
    assert not parts("Try `NCCL_DEBUG=INFO` and NCCL_IB_DISABLE=1 with python.\n", tmp_path)


# --- flight recorder -------------------------------------------------------------------------------


def test_several_settings_on_a_line(tmp_path: Path) -> None:
    listed = """
        export NCCL_SOCKET_IFNAME=enp81s0f1np1
        export NCCL_IB_TC=104 NCCL_IB_FIFO_TC=192 NCCL_IB_HCA="ionic_0:1,ionic_1:1" HSA_NO_SCRATCH_RECLAIM=1
    """
    (part,) = parts(listed, tmp_path)
    names = {"NCCL_SOCKET_IFNAME": "enp81s0f1np1", "NCCL_IB_TC": "104", "NCCL_IB_FIFO_TC": "192"}
    assert part.taken.facts == {"env": names | {"NCCL_IB_HCA": "ionic_0:1,ionic_1:1"}}
    command = """
        NCCL_IB_HCA="mlx5_0:1,mlx5_1:1" \\
        NCCL_SOCKET_IFNAME="eth0,eth1" NCCL_DEBUG=INFO torchrun --nproc_per_node 8 train.py
    """
    (part,) = parts(command, tmp_path)
    chosen = {"NCCL_IB_HCA": "mlx5_0:1,mlx5_1:1", "NCCL_SOCKET_IFNAME": "eth0,eth1", "NCCL_DEBUG": "INFO"}
    assert part.taken.facts == {"env": chosen}


def test_a_dump_as_python_prints_it(tmp_path: Path) -> None:
    raw: dict[str, Any] = json.loads((RECORDED / "torch" / "behind_rank_2.json").read_text(encoding="utf-8"))
    recording = parse(json.dumps(raw)).recording
    assert recording is not None
    for entry in raw["entries"]:
        entry["process_group"] = tuple(entry["process_group"])
    (part,) = parts(f"Rank = 2, trace = {raw!r}\n", tmp_path)
    assert part.kind == "flight recorder"
    assert part.taken.facts == recording.document("")


def test_output_of_the_analyser(tmp_path: Path) -> None:
    text = """
        $ torchfrtrace --prefix "trace_" /tmp/
        Not all ranks joining collective 5 at entry 4
        group info: 0:default_pg
        collective: nccl:all_reduce
        missing ranks: {1, 3}
        input sizes: [[3, 4]]
        output sizes: [[3, 4]]
        expected ranks: 4
        collective state: scheduled
        collective stack trace:
          <module> at crash.py:44
    """
    (part,) = parts(text, tmp_path)
    (one,) = part.taken.facts["mismatches"]
    assert (one["seq"], one["op"], one["missing_ranks"], one["expected_ranks"]) == (5, "nccl:all_reduce", [1, 3], 4)
    assert printed_dump.analysed("Not all ranks joining collective of work", ["they are late"]) is None


# --- tables ----------------------------------------------------------------------------------------

TABLE = (RECORDED / "pasted" / "nt-spark.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [72, 80, 100])
def test_a_table_that_a_screen_broke(width: int) -> None:
    (unbroken,) = nccl_tests.parse(TABLE)
    broken = "\n".join(line[at : at + width] for line in TABLE.split("\n") for at in range(0, max(1, len(line)), width))
    (report,) = nccl_tests.parse(broken)
    rows = [(row.bytes, row.out_of_place, row.in_place) for row in report.rows]
    assert rows == [(row.bytes, row.out_of_place, row.in_place) for row in unbroken.rows]
    assert report.device_names == unbroken.device_names


# --- prose about failures --------------------------------------------------------------------------


def test_a_title_is_not_who_failed() -> None:
    message = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000)"
    text = f"# [BUG] {message}\n\nHi, I see this: {message}\n\n[rank7]:[E ProcessGroupNCCL.cpp:607] [Rank 7] {message}"
    log = nccl_log.parse(text)
    assert log is not None
    assert [(failure.rank, failure.line.number) for failure in log.failures] == [(7, 5)]
    assert [one.rank for one in watchdog.parse(text).timed_out] == [7]


@pytest.mark.parametrize(
    "line",
    [
        "* `NCCL error ... unhandled system error` (NCCL Error 2)",
        "| 1 | `ncclUnhandledCudaError` | unhandled cuda error | a CUDA call failed |",
        "it dies with Watchdog caught collective operation timeout: WorkNCCL(..., OpType=ALLREDUCE, …)",
        "- `RuntimeError: Detected mismatch between collectives on ranks`",
    ],
)
def test_a_manual_reports_nothing(line: str) -> None:
    assert prose.is_manual_excerpt(line)
    assert nccl_log.parse(line) is None


def test_the_kind_of_an_error_comes_behind_its_words() -> None:
    log = nccl_log.parse(
        "[rank1]: torch.distributed.DistBackendError: NCCL error in: x/ProcessGroupNCCL.cpp:3356, unhandled cuda "
        "error, NCCL version 2.26.2\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
        "Cuda failure 2 'out of memory'\n"
    )
    assert log is not None
    assert (log.failures[0].id, log.failures[0].rank) == ("cuda_out_of_memory", 1)


def test_a_message_of_the_watchdog_that_a_screen_broke_in_its_first_words(tmp_path: Path) -> None:
    message = (
        "[rank1]:[E ProcessGroupNCCL.cpp:523] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) "
        "ran for 600487 milliseconds before timing out."
    )
    for width in (60, 66, 72, 80):
        text = "\n".join(message[at : at + width] for at in range(0, len(message), width))
        (part,) = parts(text, tmp_path)
        assert part.taken.facts["failures"][0]["id"] == "torch_watchdog_timeout", width
        (timeout,) = part.taken.facts["watchdog"]["timeouts"]
        assert (timeout["rank"], timeout["seq"], timeout["ran_ms"]) == (1, 7, 600487), width


@pytest.mark.parametrize(
    "words",
    [
        "- the run prints `# Out of bounds values : 3 FAILED`.",
        "The log ends with `# Collective test concluded: all_reduce_perf` when all is well.",
        'It begins with "# Collective test starting: all_reduce_perf" and then hangs.',
    ],
)
def test_words_of_a_report_in_a_sentence_are_no_report(words: str, tmp_path: Path) -> None:
    assert parts(words, tmp_path) == []


@pytest.mark.parametrize("mark", ["{time}[1,{rank}]<stdout>:", "[prterun-n1-77@1,{rank}]{time}<stdout>: "])
def test_times_that_mpirun_puts_before_or_behind_its_tag(mark: str, tmp_path: Path) -> None:
    lines = [
        "Infiniband device 'mlx5_0' port 1 status:",
        "        default gid:     fe80:0000:0000:0000:ec0d:9a03:0044:f1d4",
        "        base lid:        0x3",
        "        sm lid:          0x1",
        "        state:           4: ACTIVE",
        "        phys state:      5: LinkUp",
        "        rate:            100 Gb/sec (4X EDR)",
        "        link_layer:      InfiniBand",
    ]
    text = "".join(mark.format(time="Mon Jan  1 00:00:00 2024", rank=0) + f"{line}\n" for line in lines)
    (part,) = parts(text, tmp_path)
    assert part.taken.facts == parts("\n".join(lines), tmp_path)[0].taken.facts


# --- several dumps in one text ---------------------------------------------------------------------


def test_a_second_dump_in_one_text_is_refused_by_its_line(tmp_path: Path) -> None:
    entry = {"record_id": 0, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 1, "p2p_seq_id": 0,
             "op_id": 1, "profiling_name": "nccl:all_reduce", "state": "completed", "input_sizes": [[4]],
             "output_sizes": [[4]], "retired": True, "is_p2p": False}  # fmt: skip
    dumps = [json.dumps({"version": "2.4", "pg_config": {}, "rank": rank, "entries": [entry]}) for rank in (0, 1)]
    (part,) = parts(dumps[0] + "\n\n" + dumps[1] + "\n", tmp_path)
    assert [(cut.line, cut.what.partition(" begins")[0]) for cut in part.taken.cut] == [(3, "a second dump")]
    (alone,) = parts(dumps[0] + "\n", tmp_path)
    assert not alone.taken.cut
