"""The cost of a text grows linearly with its length.

Each of the repeated units used to be read again for every other one.

The CPU time of a text is compared with that of a quarter of it: quadratic growth is sixteen times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from preflight import recognition
from preflight.evidence import json_limits
from preflight.parsers.torch import watchdog
from preflight.recognition.detector import OutputFormat, TextPart
from preflight.recognition.input_sources import InputSource
from preflight.redact.own_output import names
from preflight.redact.redactor import Redactor
from preflight.textprep.lines import Lines
from preflight.textprep.wrapped_lines import unwrapped

#: Allowed ratio of the costs of a text and a quarter of it; times below this many seconds are noise.
MOST_GROWTH, NOISE_S = 9.0, 0.15
#: Maximum cost of a megabyte: growth alone would allow 200 s.
MOST_S_PER_MB = 20.0

UUID = "    GPU UUID                        : GPU-0a1b2c3d-1111-2222-3333-444455556666 | |"
FIELDS = "Product Name : x GPU UUID : y Minor Number : 0 VBIOS Version : 3 Board ID : 5 Image Version : 6 "
DUMP = '{"entries":[{"record_id":0,"profiling_name":"nccl:all_reduce","collective_seq_id":1}]}'


def repeated(unit: str) -> Callable[[int], str]:
    """Return a function that makes a text of this many characters from one unit."""
    return lambda size: unit * (size // len(unit))


def columns(number: int) -> str:
    return "\t".join(["GPU0", *(f"rdmap{at}s0" for at in range(1, number))])


def matrix(size: int) -> str:
    """Return a topology of very many columns and rows."""
    number = size // 24
    return columns(number) + "\n" + "".join(f"rdmap{number - at}s0\tX\n" for at in range(1, number))


def broken_row(size: int) -> str:
    """Return a row of a topology with each code on a separate line."""
    number = size // 16
    return columns(number) + "\nGPU0 X\n" + " SYS\n" * number


def line_of_equals(size: int) -> str:
    """Return fields on one line, followed by a rule instead of a banner."""
    return FIELDS + "=" * size


def adapters(size: int) -> str:
    """Return the output of ibstat for very many adapters."""
    lines = "\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n"
    return "".join(f"CA 'mlx5_{at}'{lines}" for at in range(size // 110))


#: A text, and the length of its shorter form.
TEXTS: dict[str, tuple[Callable[[int], str], int]] = {
    "names of GPUs on one line": (repeated("Product Name : GeForce GTX 1080 Ti | |"), 50_000),
    "UUIDs of GPUs on one line": (repeated(UUID), 100_000),
    "UUIDs without their end": (repeated("    GPU UUID                        : G"), 50_000),
    "UUIDs with written line ends": (repeated(UUID + "\\n"), 60_000),
    "heads of sections on one line": (lambda size: FIELDS + "ECC Errors " * (size // 11) + ": x", 100_000),
    "a rule behind fields": (line_of_equals, 20_000),
    "a topology of many columns": (matrix, 150_000),
    "a topology's row in many pieces": (broken_row, 100_000),
    "many adapters": (adapters, 200_000),
    "quotes before brackets": (lambda size: "a/network-status: " + "'[ " * (size // 3), 50_000),
    "lists that do not end": (repeated('[{"ifname": "eth0",\n'), 100_000),
    "settings in many places": (repeated("export NCCL_DEBUG=INFO;\n\n\nx\n\n\n\nx\n"), 8_000),
    "settings behind many lines": (lambda size: "x\n" * size + "export NCCL_DEBUG=INFO\n\n\nx\n" * 300, 10_000),
    "different errors of GPUs": (
        lambda size: "".join(
            f"[{at:5d}.1] NVRM: Xid (PCI:0000:{at % 256:02x}:00): {at}, x\n" for at in range(size // 46)
        ),
        40_000,
    ),
    "messages of one width": (
        repeated("[x ProcessGroupNCCL.cpp:523] Watchdog caught collective operation timeout:\n"),
        60_000,
    ),
    "dumps of a flight recorder": (repeated(DUMP + "\nx\n"), 20_000),
}


def read(text: str, folder: Path) -> tuple[list[TextPart], float]:
    """Read a text; return its parts and the CPU seconds."""
    path = folder / "text"
    path.write_text(text, encoding="utf-8")
    began = time.process_time()
    parts = recognition.read(InputSource("text", path, text))
    return parts, time.process_time() - began


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_text_costs_grows_as_its_length(name: str, tmp_path: Path) -> None:
    make, size = TEXTS[name]
    read(make(2000), tmp_path)  # modules are imported, patterns compiled
    shorter = max(read(make(size), tmp_path)[1], NOISE_S)
    text = make(4 * size)
    longer = read(text, tmp_path)[1]
    if longer > MOST_GROWTH * shorter:
        longer = read(text, tmp_path)[1]
    assert longer <= MOST_GROWTH * shorter
    assert longer <= MOST_S_PER_MB * len(text) / 1e6


def test_more_gpus_than_a_machine_can_have_are_not_judged(tmp_path: Path) -> None:
    """50 KB of section heads used to take 10 s: eighteen checks judged each of the GPUs."""
    name = "    Product Name                          : NVIDIA H100\n"
    for number, words in ((256, "each of 256 GPUs answers"), (257, "257 GPUs in one output")):
        gpus = "".join(f"\nGPU 00000000:{at % 256:02X}:{at // 256:02X}.0\n{name}" for at in range(number))
        (part,) = read(f"Attached GPUs                             : {number}\n{gpus}", tmp_path)[0]
        (answer,) = [finding for finding in part.findings if finding["check"] == "gpu.driver"]
        assert answer["status"] == ("pass" if number == 256 else "unknown")
        assert answer["message"].startswith(words)


#: Texts with names that were each searched from every other one, and the length of the shorter form.
PLACES: dict[str, tuple[Callable[[int], str], int]] = {
    "empty lines below a host": (lambda size: "host" + "\n" * size, 15_000),
    "options of ssh": (repeated("ssh" + " -b -c" * 9 + "\n"), 10_000),
    "parts of a name before a line": (lambda size: "gpu1" + "-a1b" * (size // 4) + "\n", 10_000),
    "a name of a switch that does not end": (lambda size: 'S-\nSwitch x# "a' + "1" * size, 10_000),
    "blocks of YAML that are none": (repeated("  password: |\n"), 50_000),
    "elements of a page that do not end": (repeated('class="names">'), 60_000),
}


def test_work_of_a_watchdog_that_does_not_end_is_looked_at_once() -> None:
    lines = ["Watchdog caught " + "WorkNCCL(" * 2000, ""] * 16
    began = time.process_time()
    assert not watchdog.parse("\n".join(lines))
    assert time.process_time() - began < 3  # it took 10 s


def test_lines_of_a_watchdog_are_given_to_no_reader_of_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader used to look at each line twenty times: 240 KB took 20 s."""
    lines_read = 0

    def counted(lines: Lines, writer: str, kinds: Sequence[OutputFormat]) -> Iterator[TextPart]:
        nonlocal lines_read
        lines_read += len(lines)
        return iter(())

    monkeypatch.setattr(recognition, "parts", counted)
    message = (
        "3. [rank0]:[E822 01:47:21.5 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=96, OpType=ALLGATHER, NumelIn=1, NumelOut=2, Timeout(ms)=6000) ran for 6004 milliseconds\n"
    )
    assert recognition.read_text((message * 900).rstrip(), "x") == []
    assert lines_read == 0
    recognition.read_text(message * 3 + "1. [a] [b] [c] nothing\n" * 9, "x")
    assert lines_read >= 9


def test_a_line_that_was_joined_begins_no_other() -> None:
    """After each line of one width, all following lines used to be joined: quadratic time."""
    first = b"gpu1:1:1 [0] NCCL WARN " + b"x" * 57
    lines = [*[first, b"NCCL y" + b"z" * 74, b"w" * 80, b"end"] * 3, b""]
    joined = [line for line in unwrapped(lines) if line]
    assert joined == [first + b"NCCL y" + b"z" * 74 + b"w" * 80 + b"end"] * 3


def test_messages_of_process_groups_are_no_rest_of_another() -> None:
    line = b"[E ProcessGroupNCCL.cpp:523] Watchdog caught collective operation timeout:"
    assert unwrapped([line] * 9) == [line] * 9
    timed = b"[E0822 01:47:21.522560606 ProcessGroupNCCL.cpp:607] Watchdog caught collective"
    assert unwrapped([timed] * 9) == [timed] * 9


@pytest.mark.parametrize("name", PLACES)
def test_what_redacting_costs_grows_as_the_text(name: str) -> None:
    make, size = PLACES[name]

    def seconds(text: str) -> float:
        redactor = Redactor(b"key")
        began = time.process_time()
        redactor.learn(text)
        redactor.text(text)
        return time.process_time() - began

    seconds(make(2000))
    shorter = max(seconds(make(size)), NOISE_S)
    assert min(seconds(make(4 * size)) for _ in range(2)) <= MOST_GROWTH * shorter


def test_brackets_in_a_list_of_names_are_looked_at_once() -> None:
    began = time.process_time()
    assert names("[" * 100_000) == []
    assert time.process_time() - began < 2  # it took 7 s
    assert names("gpu[001-004,007],login1") == ["gpu[001-004,007]", "login1"]


def test_a_key_that_comes_again_is_found_at_the_end() -> None:
    text = "{" + ",".join(f'"{number}":0' for number in range(60_000)) + ',"59999":1}'
    began = time.process_time()
    with pytest.raises(ValueError, match="it has the key '59999' twice"):
        json_limits.decoded(text.encode(), once=True)
    assert time.process_time() - began < 5  # it took 30 s


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("ssh -o BatchMode=yes -p 22 -v hawk007 uptime", ["hawk007"]),
        ("ssh -v -v -J hawk001 hawk002 uptime", ["hawk002"]),
        ("ssh -w hawk003", ["hawk003"]),
        ("hawk001-ib0.x-1: up\nhawk002-ib0.x-1: up\nhawk003-ib0.x-1: up\n", ["hawk001", "hawk002", "hawk003"]),
        ("  host      : hawk001", ["hawk001"]),
        ('Switch 64 "S-0002c9"   # "hawk-leaf01" base', ["hawk-leaf01"]),
    ],
)
def test_names_are_found_in_these_places_still(text: str, hosts: list[str]) -> None:
    redactor = Redactor(b"key")
    redactor.learn(text)
    made = redactor.text(text)
    assert not [host for host in hosts if host in made]


def test_the_equals_of_a_gpu_are_those_of_its_product_and_those_without_a_name(tmp_path: Path) -> None:
    lines = {
        "00000000:01:00.0": ["Product Name : A", "Remapped Rows", "    Pending : No", "GPU Recovery Action : None"],
        "00000000:02:00.0": ["Product Name : A", "GPU Recovery Action : None"],
        "00000000:03:00.0": ["Product Name : B", "GPU Recovery Action : None"],
    }
    text = "".join(f"GPU {bus}\n" + "".join(f"    {line}\n" for line in own) for bus, own in lines.items())
    (part,), _ = read("Attached GPUs : 3\n" + text, tmp_path)
    unknown = [finding["message"] for finding in part.findings if finding["status"] == "unknown"]
    assert [message for message in unknown if "remapped" in message] == [
        "0000:02:00.0: the text lacks its remapped rows, which identical GPUs show"
    ]


def test_a_list_of_settings_far_down_is_named_by_its_own_lines(tmp_path: Path) -> None:
    (part,), _ = read("\n" * 5000 + "export NCCL_IB_DISABLE=2\nexport NCCL_DEBUG=INFO\n", tmp_path)
    messages = " ".join(finding["message"] for finding in part.findings)
    assert part.first == 5001
    assert "NCCL_IB_DISABLE=2 in line 5001 is neither 0 nor 1" in messages


def test_a_list_on_many_lines_is_read_to_its_end(tmp_path: Path) -> None:
    port = '{"ifindex": 0, "ifname": "mlx5_0", "port": 1, "state": "ACTIVE", "physical_state": "LINK_UP"}'
    text = "[\n" + ",\n".join(port.replace(", ", ",\n") for _ in range(200)) + "\n]\n"
    (part,), _ = read(text, tmp_path)
    assert part.kind == "rdma link"
    assert len(part.taken.facts["ports"]) == 200
    assert part.last == text.count("\n")


@pytest.mark.parametrize("number", [20, 40, 3000])
def test_elements_within_elements_are_no_error(number: int, tmp_path: Path) -> None:
    inner = "<clocks_event_reasons>" * number + "<gpu_idle>Active</gpu_idle>\n</clocks_event_reasons>" * 2
    text = f"<nvidia_smi_log>\n<driver_version>550.54</driver_version>\n<gpu id='00000000:01:00.0'>\n{inner}\n"
    (part,), _ = read(text, tmp_path)
    assert part.kind == "nvidia-smi -q -x"
    assert part.taken.facts["driver"] == "550.54"
    (closed,), _ = read(text + "</clocks_event_reasons>\n" * (number - 2) + "</gpu>\n</nvidia_smi_log>\n", tmp_path)
    assert [gpu["bus_id"] for gpu in closed.taken.facts["gpus"]] == ["00000000:01:00.0"]


def test_fields_within_fields_are_no_error(tmp_path: Path) -> None:
    indented = "".join(f"{chr(9) * (at // 4)}{' ' * (at % 4)}Clocks Event Reasons\n" for at in range(4, 1000))
    text = f"Driver Version : 550.54\nAttached GPUs : 1\nGPU 00000000:01:00.0\n    Product Name : x\n{indented}"
    (part,), _ = read(text, tmp_path)
    assert part.taken.facts["driver"] == "550.54"
    assert part.taken.facts["gpus"][0]["product"] == "x"
