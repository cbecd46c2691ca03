"""The linter of NCCL's variables: its table, every rule, valid settings, and the three inputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.checks import in_module
from preflight.checks.job import rank_agreement
from preflight.collector import process_environments
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts import nccl_environment
from preflight.facts.nccl_environment import NcclEnvironment, Selection, Setting
from preflight.facts.nccl_kill_switches import SWITCHES
from preflight.facts.nccl_settings import RULES, SettingScope, Violation, lint, named_files
from preflight.facts.nccl_settings.catalogue import KINDS, Variable, nearest, read, table, version
from preflight.facts.nccl_settings.collect import CollectedSettings, of_listing, of_log, ranks
from preflight.facts.nccl_settings.rank_agreement import MUST, compared, disagreements
from preflight.facts.nccl_settings.value_grammar import LEVELS, faults
from preflight.facts.node import NodeFacts
from preflight.judge import judge
from preflight.parsers import nccl_log
from preflight.probes.probe import ENVIRONMENT
from tests.support import paths
from tests.support.fixture import cases
from tests.support.nccl_rules import RULES as OF_THE_GUIDE

NEWEST = SettingScope(versions=((2, 30, 7),))


def env(**values: str) -> NcclEnvironment:
    return NcclEnvironment(tuple(Setting(name, value, "env:process") for name, value in values.items()), {})


def lint_messages(values: dict[str, str], here: SettingScope = NEWEST) -> list[str]:
    return [complaint.what for complaint in lint(env(**values), here)]


# --- the rules, by fixture -------------------------------------------------------------------------

STATUSES = {case.name: [finding["status"] for finding in case.body["findings"]] for case in cases()}


@pytest.mark.parametrize("rule", OF_THE_GUIDE)
def test_every_rule_has_fixtures_that_raise_it_and_that_do_not(rule: str) -> None:
    raising, silent = OF_THE_GUIDE[rule]
    assert raising
    assert silent
    for name in raising:
        assert {"warn", "fail"} & set(STATUSES[name]), f"{name} raises nothing"
    for name in silent:
        statuses = set(STATUSES[name])
        assert statuses <= {"pass", "skip"} or (statuses == {"warn"} and rule.startswith("NCCL_P2P_LEVEL")), name


# --- the table -------------------------------------------------------------------------------------


def test_the_table_is_complete() -> None:
    known = table()
    assert len(known.variables) == 302
    documented = [variable for variable in known.variables.values() if variable.documented]
    assert len(documented) == 113, "every variable of the user guide 2.30"
    for variable in known.variables.values():
        assert variable.kind in KINDS
        assert variable.name.startswith("NCCL_")
        assert variable.ended in ("", "removed", "renamed", "deprecated")
        if variable.ended and variable.ended_in:
            assert version(variable.ended_in) <= known.newest
        if variable.instead:
            assert variable.instead in known.variables
            assert known.variables[variable.instead].ended in ("", "deprecated")
        if variable.last is not None:
            assert variable.ended in ("removed", "renamed")
        if variable.values and variable.number is not None:
            assert variable.number in variable.values
        assert variable.min is None or variable.max is None or variable.min < variable.max
        assert {word for word, _ in variable.values_since} <= set(variable.values)
    assert not set(known.pytorch) & set(known.variables)
    assert not set(known.invented) & set(known.variables)
    assert {meant for meant in known.invented.values() if meant.startswith("NCCL_")} <= set(known.variables)
    assert set(known.variables) >= MUST


def test_every_variable_that_a_check_names_is_in_the_table() -> None:
    from preflight.checks.nccl.environment import LEFTOVERS

    assert [leftover.variable for leftover in LEFTOVERS] == list(SWITCHES)
    assert set(SWITCHES) <= set(table().variables)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"newest": 1}', '{"variables": [{}]}', '{"variables": 3}'])
def test_what_is_no_table(text: str) -> None:
    with pytest.raises(ValueError, match=r"no table|Expecting value"):
        read(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [("2.27.5", (2, 27, 5)), ("2.21.5+cuda12.4", (2, 21, 5)), ("v2.5", (2, 5, 0)), ("2.27.5-1", (2, 27, 5))],
)
def test_versions(text: str, number: tuple[int, int, int]) -> None:
    assert version(text) == number


@pytest.mark.parametrize("text", ["", "two", "2", "2.27.5.1", "2.2777"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(ValueError, match="not an NCCL version"):
        version(text)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"), ("NCCL_IFNAME_SOCKET", "NCCL_SOCKET_IFNAME"),
        ("NCCL_IB_GID_IDX", "NCCL_IB_GID_INDEX"), ("NCCL_P2P_DISABLED", "NCCL_P2P_DISABLE"),
        ("NCCL_IB_TIME_OUT", "NCCL_IB_TIMEOUT"), ("NCCL_CUMEM_ENABLED", "NCCL_CUMEM_ENABLE"),
        ("nccl_debug", "NCCL_DEBUG"), ("NCCL_MAX_NCHANNEL", "NCCL_MAX_NCHANNELS"), ("NCCL_QUUX", ""),
        ("NCCL_IB_GDR_LEVELS", "NCCL_NET_GDR_LEVEL"), ("NCCL_IB_QPS", "NCCL_IB_QPS_PER_CONNECTION"),
    ],
)  # fmt: skip
def test_nearest_name(written: str, meant: str) -> None:
    assert nearest(written) == meant


@pytest.mark.parametrize(("name", "value"), [("NCCL_IB_HCA", "mlx5_0, mlx5_1"), ("NCCL_SOCKET_IFNAME", "eth0 ,eth1")])
def test_a_blank_within_a_list_is_reported(name: str, value: str) -> None:
    (what,) = lint_messages({name: value})
    assert "has a blank in its list" in what


#: As in Google's published profile for GPUDirect-TCPXO on A3 Mega machines.
OF_GOOGLE = {
    "NCCL_FASTRAK_IFNAME": "eth1,eth2", "NCCL_ALGO": "Ring,Tree", "NCCL_PROTO": "Simple", "NCCL_MAX_NCHANNELS": "8",
    "NCCL_NVLS_ENABLE": "0",
}  # fmt: skip


def test_the_recipe_of_googles_plugin_is_no_leftover() -> None:
    here = SettingScope(nvlink=True, nvswitch=True)

    def habits(values: dict[str, str]) -> list[str]:
        return [one.what for one in lint(env(**values), here, ["pinned_choices", "left_over"])]

    assert habits(OF_GOOGLE) == []
    alone = habits({name: value for name, value in OF_GOOGLE.items() if "FASTRAK" not in name})
    assert [what.split("=")[0] for what in alone] == [
        "NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS", "NCCL_NVLS_ENABLE"
    ]  # fmt: skip
    assert "leaves NCCL these algorithms only" in alone[0]
    assert len(habits(OF_GOOGLE | {"NCCL_PROTO": "LL128"})) == 1
    assert habits(OF_GOOGLE | {"NCCL_PROTO": "Simple,LL128"}) == [], "TCPXO's second profile"
    assert list(lint(env(**OF_GOOGLE), SettingScope(), ["version_names"])) == [], "channels are counted by the recipe"


def test_a_switch_that_ranks_sharing_a_gpu_need_is_no_leftover() -> None:
    shared = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NVLS_ENABLE": "0"}
    assert list(lint(env(**shared), SettingScope(), ["left_over"])) == []
    assert len(list(lint(env(**shared | {"NCCL_MULTI_RANK_GPU_ENABLE": "0"}), SettingScope(), ["left_over"]))) == 1


def test_infiniband_switched_off_beside_libfabric_is_no_leftover() -> None:
    off = env(NCCL_IB_DISABLE="1")
    assert list(lint(off, SettingScope(libfabric=True), ["left_over"])) == []
    assert len(list(lint(off, SettingScope(), ["left_over"]))) == 1


def test_variables_that_the_newest_series_dropped_are_reported_only_for_a_known_release() -> None:
    recent = env(NCCL_SHM_USE_CUDA_MEMCPY="1")
    assert list(lint(recent, SettingScope(), ["version_names"])) == []
    assert list(lint(recent, SettingScope(versions=((2, 27, 5),)), ["version_names"])) == []
    assert len(list(lint(recent, SettingScope(versions=((2, 30, 7),)), ["version_names"]))) == 1


@pytest.mark.parametrize("name", sorted(table().invented))
def test_an_invented_name_is_reported_even_if_other_programs_have_similar_names(name: str) -> None:
    assert not table().owner(name)
    assert any("is a variable that has never existed" in what for what in lint_messages({name: "1"}))


@pytest.mark.parametrize(
    "name",
    ["NCCL_FASTRAK_IFNAME", "NCCL_SHARP_GROUP_SIZE_THRESH", "NCCL_UCX_TLS", "OFI_NCCL_PROTOCOL", "NCCL_VERSION",
     "NCCL_TESTS_SPLIT_MASK", "TORCH_NCCL_DUMP_ON_TIMEOUT", "NCCL_BLOCKING_WAIT", "NCCL_PROFILE_DUMP_FILE",
     "NCCL_IBEXT_DISABLE"],
)  # fmt: skip
def test_names_of_others_are_known(name: str) -> None:
    assert table().owner(name)
    assert not lint_messages({name: "1"})


# --- values ----------------------------------------------------------------------------------------

#: Valid words in the guide, for kinds that are not a list of choices.
LEGAL_TEXT = {
    "path": "/opt/x/topo.%h.%p.xml", "text": "libnccl-x.so", "ports": "^=mlx5_0:1,mlx5_3", "interfaces": "=eth0,ib",
    "network": "fd00:10::/64", "address": "[::1]:28028",
}  # fmt: skip


def legal(variable: Variable) -> st.SearchStrategy[str]:
    """Values that the guide allows, except those that a rule advises against (a short time-out, an odd buffer)."""
    if variable.name == "NCCL_IB_TIMEOUT":
        return st.integers(18, 31).map(str)
    if variable.name == "NCCL_IB_RETRY_CNT":
        return st.just("7")
    if variable.name == "NCCL_BUFFSIZE":
        return st.integers(20, 30).map(lambda bits: str(2**bits))
    if variable.kind == "truth":
        return st.sampled_from(["0", "1", "T", "true", "F", "FALSE"])
    if variable.kind == "switch":
        return st.sampled_from(["0", "1", "0x1"])
    if variable.kind == "level":
        return st.sampled_from([*LEVELS, "0", "4", "5"])
    if variable.kind == "words":
        words = st.lists(st.sampled_from([str(word) for word in variable.values]), min_size=1, unique=True)
        return st.builds(lambda mark, found, case: mark + case(",".join(found)), st.sampled_from(["", "^"]), words,
                         st.sampled_from([str, str.lower, str.upper]))  # fmt: skip
    if variable.values:
        return st.sampled_from([str(value).replace("MAX:N", "MAX:2") for value in variable.values])
    if variable.kind in ("number", "bytes"):
        least = variable.min if variable.min is not None else 0
        return st.integers(least, variable.max if variable.max is not None else 2**31).map(str)
    return st.just(LEGAL_TEXT[variable.kind])


CURRENT = [variable for variable in table().variables.values() if not variable.ended]


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_random_legal_settings_raise_nothing(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(CURRENT), max_size=12, unique_by=lambda one: one.name))
    values = {variable.name: data.draw(legal(variable), label=variable.name) for variable in chosen}
    judged = lint(env(**values), NEWEST, ["unknown_names", "version_names", "bad_values"])
    assert [complaint.what for complaint in judged] == []


@pytest.mark.parametrize("variable", [v for v in CURRENT if v.number is not None], ids=lambda variable: variable.name)
def test_a_default_raises_nothing_at_all(variable: Variable) -> None:
    everywhere = SettingScope(
        ((2, 30, 7),), nvlink=True, nvswitch=True, peer_memory=True, infiniband=True, rails_apart=True
    )
    assert lint_messages({variable.name: str(variable.number)}, everywhere) == []


#: Published production settings of clouds and sites, with their judgement.
RECIPES: dict[str, tuple[dict[str, str], SettingScope, set[str]]] = {
    "Google Cloud, gIB": ({
        "NCCL_NET": "gIB", "NCCL_CROSS_NIC": "0", "NCCL_NET_GDR_LEVEL": "PIX", "NCCL_P2P_NET_CHUNKSIZE": "131072",
        "NCCL_NVLS_CHUNKSIZE": "524288", "NCCL_IB_ADAPTIVE_ROUTING": "1", "NCCL_IB_QPS_PER_CONNECTION": "4",
        "NCCL_IB_TC": "52", "NCCL_IB_FIFO_TC": "84", "NCCL_TUNER_CONFIG_PATH": "/usr/local/gib/configs/tuner.txtpb",
    }, SettingScope(((2, 26, 5),), nvlink=True, nvswitch=True, infiniband=False), set()),
    "Azure ND": ({
        "NCCL_TOPO_FILE": "/opt/microsoft/ndv5-topo.xml", "NCCL_IB_PCI_RELAXED_ORDERING": "1", "NCCL_IB_HCA": "mlx5_ib",
        "NCCL_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "WARN", "UCX_TLS": "rc",
    }, SettingScope(((2, 21, 5),), nvlink=True, nvswitch=True, infiniband=True), set()),
    "AWS EFA": ({
        "FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "NCCL_NET_PLUGIN": "ofi", "OFI_NCCL_PROTOCOL": "RDMA",
        "NCCL_SOCKET_IFNAME": "^docker,lo,veth",
    }, SettingScope(((2, 27, 5),), nvlink=True, nvswitch=True), set()),
    "Oracle RoCE": ({
        "NCCL_IB_SPLIT_DATA_ON_QPS": "0", "NCCL_IB_QPS_PER_CONNECTION": "4", "NCCL_IB_TC": "41", "NCCL_IB_SL": "0",
        "NCCL_IB_TIMEOUT": "22", "NCCL_NET_PLUGIN": "none", "NCCL_IB_HCA": "=mlx5_0,mlx5_1", "NCCL_CUMEM_ENABLE": "0",
    }, SettingScope(((2, 26, 2),), nvlink=True, nvswitch=True, infiniband=False), set()),
    "an old recipe": ({
        "NCCL_IB_CUDA_SUPPORT": "1", "NCCL_TREE_THRESHOLD": "0", "NCCL_LAUNCH_MODE": "PARALLEL",
    }, SettingScope(((2, 26, 2),)), {"ended-name"}),
}  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_published_settings_raise_no_false_alarm(name: str) -> None:
    values, here, expected = RECIPES[name]
    assert {complaint.rule for complaint in lint(env(**values), here)} == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("NCCL_IB_DISABLE", "yes", "where 1 was meant"), ("NCCL_IB_DISABLE", "no", "is not a number"),
        ("NCCL_IB_DISABLE", "'1'", "where 1 was meant"), ("NCCL_IB_DISABLE", "2", "neither 0 nor 1"),
        ("NCCL_IB_TIMEOUT", "18 ", ""), ("NCCL_IB_TIMEOUT", "22\r", ""), ("NCCL_IB_TIMEOUT", "0x16", ""),
        ("NCCL_CUMEM_ENABLE", "-2", ""), ("NCCL_IB_GID_INDEX", "-1", ""), ("NCCL_NETDEVS_POLICY", "MAX:4", ""),
        ("NCCL_NETDEVS_POLICY", "MAX", "not a word that NCCL accepts"), ("NCCL_CTA_POLICY", "EFFICIENCY|ZERO", ""),
        ("NCCL_SOCKET_FAMILY", "af_inet", "in this letter case"), ("NCCL_RAS_ADDR", "localhost", "host:port"),
        ("NCCL_DEBUG_TIMESTAMP_FORMAT", "[%F %T] ", ""), ("NCCL_DEBUG_TIMESTAMP_FORMAT", "", ""),
        ("NCCL_PROTO", "^LL128,Simple", ""), ("NCCL_PROTO", "allreduce:^LL;broadcast:Simple", ""),
        ("NCCL_SET_THREAD_NAME", "true", ""), ("NCCL_DEBUG", "info", ""), ("NCCL_NET", "gIB", ""),
    ],
)  # fmt: skip
def test_values(name: str, value: str, expected: str) -> None:
    found = [fault.what for fault in faults(table().variables[name], value, (2, 30, 7))]
    assert len(found) == bool(expected), found
    assert not expected or expected in found[0]


def test_an_algorithm_is_judged_by_the_release() -> None:
    algorithm = table().variables["NCCL_ALGO"]
    assert [fault.fatal for fault in faults(algorithm, "PAT", (2, 22, 3))] == [False]
    assert "2.22.3 does not support" in next(faults(algorithm, "PAT", (2, 22, 3))).what
    assert not list(faults(algorithm, "PAT", None))
    assert [fault.fatal for fault in faults(algorithm, "Rign", (2, 24, 3))] == [True]
    assert "form of NCCL 2.24" in next(faults(algorithm, "allreduce:ring", (2, 21, 5))).what


@given(
    st.dictionaries(st.sampled_from(sorted(table().variables)) | st.text(max_size=30), st.text(max_size=30), max_size=8)
)
@settings(max_examples=150, deadline=None)
def test_any_setting_can_be_judged(values: dict[str, str]) -> None:
    for complaint in lint(NcclEnvironment(tuple(Setting(n, v, "x") for n, v in values.items()), {}), NEWEST):
        assert complaint.settings
        assert complaint.what
        assert complaint.expected


def test_a_hostile_list_of_names_costs_little() -> None:
    many = NcclEnvironment(tuple(Setting(f"NCCL_{number}_X{'A' * 2000}", "1", "x") for number in range(20_000)), {})
    began = time.process_time()
    assert len(list(lint(many, NEWEST))) == 40
    assert time.process_time() - began < 5


# --- selections ------------------------------------------------------------------------------------

I = ["lo", "eth0", "eth0.100", "eth1", "ib0", "docker0", "bond0"]  # noqa: E741


def _plainly(value: str, name: str) -> bool:
    """Read a list of interfaces one character at a time, like a C program."""
    place, invert, exact = 0, False, False
    if value[place : place + 1] == "^":
        invert, place = True, place + 1
    if value[place : place + 1] == "=":
        exact, place = True, place + 1
    any_item, found, item = False, False, ""
    for character in value[place:] + ",":
        if character != ",":
            item += character
            continue
        item, current = "", item.split(":")[0]
        if current:
            any_item = True
            found = found or (name == current if exact else name.startswith(current))
    return (found or not any_item) != invert


@given(st.sampled_from(["", "^", "=", "^=", "=^", "^^"]),
       st.lists(st.sampled_from(["eth0", "eth", "e", "", "ib", "lo", "docker0:1", " eth1", "=eth0", "bond0:0:1"]),
                max_size=5),
       st.sampled_from(I))  # fmt: skip
def test_interfaces_against_a_plain_reading(mark: str, items: list[str], name: str) -> None:
    value = mark + ",".join(items)
    assert Selection.parse(value).matches_name(name) is _plainly(value, name)


# --- three inputs, one verdict ---------------------------------------------------------------------

WRONG = {"NCCL_IB_DISABLE": "1", "NCCL_NET": "IB", "NCCL_IB_TIMEOUT": "14", "NCCL_SOCKET_IFNAMES": "eth0",
         "NCCL_DEBUG": "TRACE", "NCCL_ALGO": "Ring", "NCCL_TREE_THRESHOLD": "0"}  # fmt: skip


def essence(complaints: Any) -> set[tuple[str, tuple[str, ...], str]]:
    return {(complaint.rule, complaint.names, complaint.expected) for complaint in complaints}


def test_environment_log_and_list_are_judged_alike() -> None:
    missing = {"status": "missing", "why": "No such file or directory"}
    records = {
        "env:process": {"status": "ok", "value": WRONG},
        "file:~/.nccl.conf": missing,
        "file:/etc/nccl.conf": missing,
    }
    node = lint(nccl_environment.read(Evidence("n", "", records)), NEWEST)
    lines = "".join(f"gpu001:1:2 [0] NCCL INFO {name} set by environment to {value}\n" for name, value in WRONG.items())
    log = nccl_log.parse(lines)
    assert log is not None
    listed = of_listing("".join(f"{name}={value}\n" for name, value in WRONG.items()), "log:env.txt")
    assert listed is not None
    from_log, from_list = of_log(log.environment, "log:job.log"), listed
    expected = essence(node)
    assert len(expected) == 7
    assert essence(lint(from_log.environment, NEWEST)) == expected
    assert essence(lint(from_list.environment, NEWEST)) == expected
    assert [setting.line for setting in from_list.settings] == list(range(1, len(WRONG) + 1))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("NCCL_DEBUG=INFO\n", {"NCCL_DEBUG": "INFO"}),
        ("export NCCL_IB_HCA='=mlx5_0'\n", {"NCCL_IB_HCA": "=mlx5_0"}),
        ('declare -x NCCL_NET="AWS Libfabric"\n', {"NCCL_NET": "AWS Libfabric"}),
        ("0: NCCL_DEBUG=INFO\n1: NCCL_DEBUG=INFO\n", {"NCCL_DEBUG": "INFO"}),
        ("gpu001: NCCL_IB_HCA==mlx5_0\n", {"NCCL_IB_HCA": "=mlx5_0"}),
        ('NCCL_SOCKET_IFNAME="eth0"\r\n', {"NCCL_SOCKET_IFNAME": '"eth0"'}),
        ("HF_TOKEN=hf_x\nPATH=/bin\nNCCL_DEBUG=WARN\n", {"NCCL_DEBUG": "WARN"}),
        ("-x NCCL_DEBUG=INFO\n", {"NCCL_DEBUG": "INFO"}),
        ("\x1b[1mNCCL_DEBUG\x1b[0m=INFO\n", {"NCCL_DEBUG": "INFO"}),
    ],
)
def test_pasted_lists(text: str, found: dict[str, str]) -> None:
    listing = of_listing(text, "log:x")
    assert listing is not None
    assert {setting.name: setting.value for setting in listing.environment.settings} == found


@pytest.mark.parametrize("text", ["", "epoch=1 loss=2\n", "WORLD_SIZE=8\n", "I set NCCL_DEBUG=INFO yesterday\n"])
def test_what_is_no_list(text: str) -> None:
    assert of_listing(text, "log:x") is None


def collected(*pairs: tuple[str, str]) -> CollectedSettings:
    return CollectedSettings(
        tuple(Setting(name, value, "log:x", number) for number, (name, value) in enumerate(pairs, 1))
    )


@pytest.mark.parametrize(
    ("pairs", "rules"),
    [
        ([("NCCL_ALGO", "Ring"), ("NCCL_ALGO", "Tree")], [True]),
        ([("NCCL_ALGO", "Ring"), ("NCCL_ALGO", "Ring")], []),
        ([("NCCL_IB_TIMEOUT", "22"), ("NCCL_IB_TIMEOUT", "18")], [False]),
        ([("NCCL_IB_TIMEOUT", "22"), ("NCCL_IB_TIMEOUT", "0x16")], []),
        ([("NCCL_SOCKET_IFNAME", "eth0"), ("NCCL_SOCKET_IFNAME", "eth1")], []),
        ([("NCCL_NET", "IB"), ("NCCL_NET", "ib")], []),
        ([("NCCL_NVLS_ENABLE", "2"), ("NCCL_NVLS_ENABLE", "0")], [True]),
    ],
)
def test_ranks_that_disagree(pairs: list[tuple[str, str]], rules: list[bool]) -> None:
    found: list[Violation] = disagreements(collected(*pairs))
    assert [complaint.fatal for complaint in found] == rules


def test_what_may_differ_from_node_to_node() -> None:
    assert not any(map(compared, ["NCCL_IB_HCA", "NCCL_DEBUG_FILE", "NCCL_TOPO_FILE", "NCCL_HOSTID", "WORLD_SIZE"]))
    assert all(map(compared, MUST))


# --- the collector's part --------------------------------------------------------------------------


def _process(tmp_path: Path, pid: int, variables: dict[str, str]) -> None:
    folder = tmp_path / str(pid)
    folder.mkdir()
    (folder / "environ").write_bytes(b"".join(f"{name}={value}\0".encode() for name, value in variables.items()))
    (folder / "comm").write_text("python3\n")


def test_only_ranks_are_seen_and_only_what_is_allowed_leaves(tmp_path: Path) -> None:
    job = {"NCCL_DEBUG": "INFO", "HF_TOKEN": "hf_abcdefghijklmnopqrst", "MY_DATA": "/x", "SLURM_JOB_ID": "7"}
    for pid in range(100, 108):
        _process(tmp_path, pid, {**job, "LOCAL_RANK": str(pid - 100), "RANK": str(pid), "SLURM_PROCID": str(pid)})
    _process(tmp_path, 200, {"NCCL_DEBUG": "TRACE"})
    _process(tmp_path, 300, {"LOCAL_RANK": "0", "NCCL_NET_PLUGIN": "ghp_abcdefghijklmnopqrstuvwxyz0123456789"})
    record = process_environments.ranks(list(ENVIRONMENT), str(tmp_path))
    text = json.dumps(record)
    assert "hf_" not in text
    assert "MY_DATA" not in text
    assert "TRACE" not in text
    assert "ghp_" not in text
    found = ranks(Evidence("n", "", {"env:ranks": record}))
    assert [(one.count, one.pids[:2], dict(one.variables)) for one in found.environments] == [
        (8, (100, 101), {"NCCL_DEBUG": "INFO", "SLURM_JOB_ID": "7"}), (1, (300,), {"NCCL_NET_PLUGIN": "[redacted]"}),
    ]  # fmt: skip
    assert found.environments[0].who == "process 100 (python3) and 7 more"
    assert found.environments[0].numbers == {"RANK": tuple(range(100, 108))}, "of two numbers, the more specific"
    assert not found.environments[1].numbers
    assert found.complete


def test_ten_thousand_processes_are_bounded(tmp_path: Path) -> None:
    for pid in range(1, 400):
        _process(tmp_path, pid, {"LOCAL_RANK": "0", "NCCL_BUFFSIZE": str(pid)})
    record = process_environments.ranks(list(ENVIRONMENT), str(tmp_path))
    assert len(record["value"]["environments"]) == 64
    assert record["value"]["cut"]
    assert not ranks(Evidence("n", "", {"env:ranks": record})).complete


def test_a_running_rank_is_seen(tmp_path: Path) -> None:
    variables = {"LOCAL_RANK": "0", "RANK": "4711", "NCCL_DEBUG": "INFO", "NCCL_MARK": str(tmp_path)}
    variables["PATH"] = os.environ["PATH"]
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", "import sys; print(1, flush=True); sys.stdin.read()"],
        env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        assert child.stdout.read(1)
        value = process_environments.answer("ranks", list(ENVIRONMENT))["value"]
        mine = [one for one in value["environments"] if one["environment"].get("NCCL_MARK") == str(tmp_path)]
        assert [one["pids"] for one in mine] == [[child.pid]]
        assert set(mine[0]["environment"]) == {"NCCL_DEBUG", "NCCL_MARK"}
        assert mine[0]["numbers"] == {"RANK": [4711]}
    finally:
        child.communicate(b"")


def test_files_that_variables_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = tmp_path / "topo.xml"
    topology.write_text('<system version="1">\n <pci busid="0000:0b:00.0" class="0x030200"/>\n</system>\n')
    conf = tmp_path / "nccl.conf"
    conf.write_text(f"# AWS_SECRET_ACCESS_KEY=abc\nPASSWORD=hunter2\nNCCL_TOPO_FILE={topology}\nNCCL_DEBUG=INFO\n")
    monkeypatch.setenv("NCCL_CONF_FILE", str(conf))
    monkeypatch.setenv("NCCL_TOPO_DUMP_FILE", str(tmp_path / "dump.xml"))
    monkeypatch.setenv("NCCL_GRAPH_FILE", "/etc/hostname")
    monkeypatch.setenv("NCCL_NET_PLUGIN", "ofi")
    record = process_environments.answer("files", list(ENVIRONMENT))
    assert "hunter2" not in json.dumps(record)
    assert "SECRET" not in json.dumps(record)
    found = named_files.named(Evidence("n", "", {"env:files": record}))
    assert set(found) == {"NCCL_CONF_FILE", "NCCL_TOPO_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_FILE"}
    assert found["NCCL_TOPO_FILE"].text == topology.read_text()
    assert named_files.topology_gpus(found["NCCL_TOPO_FILE"].text or "") == ("0000:0b:00.0",)
    assert found["NCCL_TOPO_DUMP_FILE"].missing
    assert found["NCCL_TOPO_DUMP_FILE"].folder_access == "rw"
    assert found["NCCL_GRAPH_FILE"].text is None
    node = {"env:files": record, "env:process": {"status": "ok", "value": {"NCCL_CONF_FILE": str(conf)}},
            "file:/etc/nccl.conf": {"status": "missing"}}  # fmt: skip
    settings = NodeFacts(Evidence("n", "", node)).nccl_env
    assert settings.text("NCCL_DEBUG") == "INFO"
    setting = settings.get("NCCL_DEBUG")
    assert setting is not None
    assert setting.where == f"{conf} line 4"


def test_no_other_file_leaves_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "id_rsa"
    secret.write_text("what is no topology\n")
    for name in ("NCCL_TOPO_FILE", "NCCL_CONF_FILE"):
        monkeypatch.setenv(name, str(secret))
    assert "what is no" not in json.dumps(process_environments.answer("files", list(ENVIRONMENT)))


@pytest.mark.parametrize(
    "value", [None, 3, [], {"environments": 1}, {"environments": [1]}, {"environments": [{"pids": []}]},
              {"environments": [{"pids": [1], "environment": {"A": 1}}]}],
)  # fmt: skip
def test_damaged_ranks(value: Any) -> None:
    with pytest.raises(EvidenceError, match="env:ranks"):
        ranks(Evidence("n", "", {"env:ranks": {"status": "ok", "value": value}}))


@pytest.mark.parametrize("value", [3, [], {"NCCL_TOPO_FILE": 1}, {"NCCL_TOPO_FILE": {"path": "/x", "type": 1}}])
def test_damaged_files(value: Any) -> None:
    with pytest.raises(EvidenceError, match="env:files"):
        named_files.named(Evidence("n", "", {"env:files": {"status": "ok", "value": value}}))


def test_every_rule_is_used_by_a_check() -> None:
    folder = paths.ROOT / "checks"
    source = "".join(path.read_text() for path in folder.rglob("*.py"))
    # nccl.left-over-disables and nccl.socket-ifname know more than the settings
    by_itself = {"left_over", "local_interface"}
    assert {rule for rule in RULES if f'rule_findings(node, site, "{rule}")' not in source} == by_itself


@pytest.mark.parametrize(
    ("case", "status"), [("same", "pass"), ("algorithm-differs", "fail"), ("tuning-differs", "warn")]
)
def test_the_same_environment_on_every_rank_is_an_item_of_the_checklist(case: str, status: str) -> None:
    """NT-ENV-14, which one node cannot answer."""
    (check,) = [check for check in in_module(rank_agreement) if check.id == "fleet.ranks-agree"]
    found = next(one for one in cases(check.id) if one.path.stem == case)
    report = judge(found.evidences(), [check], found.cluster())
    line = next(line for line in report["checklists"] if line["id"] == "NT-ENV-14")
    assert line["status"] == status
