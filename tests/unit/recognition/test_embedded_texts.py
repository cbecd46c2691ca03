"""`preflight read` on output in a patch, in a spreadsheet's cells, or between line numbers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import paths
from tests.support.transformed import parts

#: Two rows of a table as nccl-tests 2.13 prints it (src/common.cu), made by hand.
HEAD = """\
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
OLD = """\
     1048576        262144     float     sum      -1    80.00   13.11   24.58      0    81.00   12.95   24.27      0
"""
ROWS = """\
     1048576        262144     float     sum      -1    76.26   13.75   25.78      0    76.43   13.72   25.72      0
   268435456      67108864     float     sum      -1   1377.7  194.84  365.33      0   1376.1  195.07  365.76      0
"""
FOOT = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 195.648\n"


def _marked(mark: str, text: str) -> str:
    return "".join(f"{mark}{line}\n" for line in text.splitlines())


def _cells(text: str, separator: str, *, quoted: bool = False, commas: bool = False) -> str:
    lines = []
    for line in text.splitlines():
        cells = [line] if line.startswith("# O") or line.startswith("# A") else line.replace("#  ", "").split()
        cells = [cell.replace(".", ",") for cell in cells] if commas else cells
        lines.append(separator.join(f'"{cell}"' if quoted else cell for cell in cells) + separator * (13 - len(cells)))
    return "\n".join(lines) + "\n"


PACKED = {
    "a patch that replaces a row": (
        "diff --git a/out.md b/out.md\nindex 1a2b3c4..5d6e7f8 100644\n--- a/out.md\n+++ b/out.md\n"
        "@@ -40,8 +40,8 @@ Output:\n"
        + _marked(" ", HEAD) + _marked("-", OLD) + _marked("+", ROWS) + _marked(" ", FOOT)
    ),
    "a fence of a patch": f"```diff\n{_marked('-', OLD)}{_marked('+', HEAD + ROWS + FOOT)}```\n",
    "a patch that takes away": "@@ -1,6 +0,0 @@\n" + _marked("-", HEAD + ROWS + FOOT),
    "diff without options": f"3c3,4\n{_marked('< ', OLD)}---\n{_marked('> ', HEAD + ROWS + FOOT)}",
    "commas": _cells(HEAD + ROWS + FOOT, ","),
    "commas and quotes": _cells(HEAD + ROWS + FOOT, ",", quoted=True),
    "semicolons and decimal commas": _cells(HEAD + ROWS + FOOT, ";", commas=True),
    "bars": _cells(HEAD, "|") + "|---" * 13 + "|\n" + _cells(ROWS + FOOT, "|"),
    "decimal commas": (HEAD + ROWS + FOOT).replace(".", ","),
    "marks of thousands": HEAD + ROWS.replace("1048576", "1,048,576").replace("262144", "262,144")
    .replace("268435456", "268,435,456").replace("67108864", "67,108,864").replace("1377.7", "1,377.7") + FOOT,
    "numbers of lines": "".join(
        f"{number}: {line}\n" for number, line in enumerate(("Output:\n\n" * 4 + HEAD + ROWS + FOOT).splitlines(), 1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", PACKED)
def test_a_table_gives_the_same_facts_however_it_is_packed(way: str) -> None:
    def facts(text: str) -> list[Any]:
        return [part.taken.facts for part in parts(text) if part.kind == "nccl-tests"]

    assert facts(PACKED[way]) == facts(HEAD + ROWS + FOOT)
    assert facts(PACKED[way])[0]["max_busbw"] == 365.76


TOPO = """\
     GPU0 GPU1 NIC0 CPU Affinity NUMA Affinity
GPU0 X NV12 PXB 0-31 0
GPU1 NV12 X SYS 32-63 1
NIC0 PXB SYS X
"""


@pytest.mark.parametrize("separator", [",", ";", "|"])
def test_a_matrix_of_a_spreadsheet_is_one(separator: str) -> None:
    head, *rows = TOPO.splitlines()
    names = ["", *head.split()[:3], "CPU Affinity", "NUMA Affinity"]
    lines = [separator.join(names), *(separator.join(row.split()) for row in rows)]
    if separator == "|":
        lines = [f"| {line} |" for line in [lines[0], "|".join(["---"] * 6), *lines[1:]]]
    (part,) = parts("\n".join(lines) + "\n")
    assert part.kind == "nvidia-smi topo -m"
    facts = part.taken.facts
    assert facts["links"]["GPU0"] == {"GPU1": "NV12", "NIC0": "PXB"}
    assert facts["affinity"]["GPU1"]["cpu"] == "32-63"
    assert facts["nearest_nics"]["GPU0"] == ["NIC0"]


def test_of_a_patch_counts_what_is_there_afterwards() -> None:
    text = """\
The port came up:

```diff
 CA 'mlx5_0'
 \tPort 1:
-\t\tState: Down
-\t\tRate: 10
+\t\tState: Active
+\t\tPhysical state: LinkUp
+\t\tRate: 400
 \t\tBase lid: 17
```
"""
    (part,) = parts(text)
    (port,) = part.taken.facts["ports"]
    assert (port["state"], port["rate_gbps"], port["lid"]) == ("Active", 400, 17)


@pytest.mark.parametrize("mark", ["[1,0]<stdout>:", "> ", "[pod/job-0/main] ", "0: ", "-", "+"])
def test_json_behind_marks_is_complete(mark: str) -> None:
    text = (paths.DATA / "nccl-tests" / "json_2gpu.json").read_text(encoding="utf-8")

    def facts(text: str) -> list[Any]:
        return [part.taken.facts for part in parts(text) if part.kind == "nccl-tests"]

    assert facts(text)
    assert facts(_marked(mark, text)) == facts(text)


def test_lists_are_no_cells() -> None:
    """``lscpu -p``, CPU lists and settings have commas as well."""
    text = "NUMA node(s): 2\nCPU(s): 12\nNUMA node0 CPU(s): 0,2,4,6,8,10\nNUMA node1 CPU(s): 1,3,5,7,9,11\n"
    (part,) = parts(text)
    assert part.taken.facts["numa_nodes"]["0"]["cpus"] == [0, 2, 4, 6, 8, 10]


def test_a_dump_behind_a_launchers_mark_is_complete() -> None:
    entry = (
        '{"record_id": 8, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 9, "p2p_seq_id": 0,'
        ' "profiling_name": "nccl:all_gather", "state": "started", "retired": false, "is_p2p": false}'
    )
    text = f'{{\n "version": "2.10",\n "nccl_version": "2.27.5",\n "entries": [\n  {entry}\n ]\n}}\n'
    (part,) = parts(_marked("[rank3]: ", text))
    assert part.taken.complete
    assert part.taken.facts["version"] == "2.10"
    assert part.taken.facts["unfinished"][0]["seq"] == 9
