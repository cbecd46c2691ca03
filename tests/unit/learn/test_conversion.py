"""``preflight learn --from``: an NHC or gcm configuration becomes a cluster file; losses are listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from preflight.checks import registry
from preflight.cli import app
from preflight.expectations import NodeClass
from preflight.expectations.cluster_file import decode
from preflight.learn.conversion import Conversion, ConversionError, convert
from preflight.learn.conversion.nhc_checks import _COVERED
from tests.support.paths import DATA

NHC, MANIFEST = DATA / "conversion" / "nhc.conf", DATA / "conversion" / "manifest.json"
HOSTS = [*(f"gx{number}" for number in range(101, 117)), "cpu07", "login1", "login2"]


def nhc(*lines: str, hosts: tuple[str, ...] = ()) -> Conversion:
    return convert("\n".join(lines).encode(), "nhc.conf", hosts)


def classes(made: Conversion) -> dict[str, NodeClass]:
    return dict(decode(made.text.encode(), "cluster.toml").classes)


def only(*lines: str) -> NodeClass:
    (members,) = classes(nhc(*lines)).values()
    return members


def lost_lines(made: Conversion) -> set[int]:
    return {int(line.split(":")[1]) for line in made.lost}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app.main, ["learn", *map(str, arguments)], catch_exceptions=False)


# --- the forms that NHC's documentation shows ---


def test_a_configuration_becomes_a_class_for_each_kind_of_node() -> None:
    classes_made = classes(convert(NHC.read_bytes(), "nhc.conf", HOSTS))
    gx, cpu, login = classes_made["gx"], classes_made["cpu"], classes_made["login"]
    assert (gx.nodes, cpu.nodes, login.nodes) == (tuple(HOSTS[:16]), ("cpu07",), ("login1", "login2"))
    assert (gx.hcas, gx.ports.compute, gx.ports.rate_gbps) == (3, ("mlx5_0", "mlx5_1", "mlx5_4"), 400)
    assert (gx.host.sockets, gx.host.cpus, gx.host.smt, gx.host.swap) == (2, 192, True, False)
    assert gx.host.memory_gib == pytest.approx(2014.97, abs=0.01)
    assert gx.firmware.bios == "3.8.11"
    assert (gx.host.services, gx.host.forbidden_processes) == (("sssd", "munge"), ("coinminer",))
    assert (cpu.host.cpus, cpu.host.smt, cpu.host.services) == (48, False, ("sssd", "munge", "cron"))
    mounts = gx.host.mounts
    assert set(mounts) == {"/", "/tmp", "/local/work", "/apps", "/home"}
    assert (mounts["/local/work"].type, mounts["/local/work"].read_write) == ("xfs", True)
    assert (mounts["/local/work"].min_free_pct, mounts["/"].min_free_pct) == (10, 5)
    assert mounts["/tmp"].min_free_inodes == 5000
    assert (mounts["/apps"].type, mounts["/apps"].read_write) == ("squashfs", False)
    assert (mounts["/home"].type, mounts["/home"].read_write) == ("nfs4", None)
    assert (login.hcas, login.host.cpus, set(login.host.mounts)) == (None, None, set(mounts))


def test_nothing_is_dropped_silently() -> None:
    """Each line is a value of the file, or is listed with its number and a reason."""
    made = convert(NHC.read_bytes(), "nhc.conf", HOSTS)
    numbers = {
        number for number, line in enumerate(NHC.read_text().splitlines(), 1) if line.strip() and line.strip()[0] != "#"
    }
    named = {int(text) for lines in re.findall(r"# lines? ([\d, ]+)", made.text) for text in lines.split(",")}
    listed = {int(line.split(":")[1]) for line in (*made.lost, *made.covered)}
    assert numbers - named - listed == {4}  # a variable that other lines depend on
    assert lost_lines(made) == {5, 10, 11, 12, 13, 14, 16, 19, 27, 30, 31, 32, 33, 34, 36, 37}
    for line in (*made.lost, *made.covered):
        assert re.fullmatch(r"nhc\.conf:\d+: .+: .+", line)
        assert line.split(": ", 2)[2].split(":")[-1].strip()[:30] in " ".join(re.sub("\n# *", " ", made.text).split())


def test_without_the_names_of_nodes_a_pattern_is_a_comment() -> None:
    made = nhc("gx* || check_hw_swap 0 0", "login* || check_hw_cpuinfo 2 8 8", "gx7 || check_hw_cpuinfo 1 4 4")
    classes_made = classes(made)
    assert {name: each.nodes for name, each in classes_made.items()} == {"gx": ("gx7",)}
    assert (classes_made["gx"].host.swap, classes_made["gx"].host.sockets) == (False, 1)
    assert "# [class.login]" in made.text
    assert "# sockets = 2  # line 2" in made.text
    assert lost_lines(made) == {1, 2}
    assert made.classes == 1


def test_one_pattern_alone_is_the_class_of_all_nodes_and_is_listed() -> None:
    made = nhc("gx* || check_hw_swap 0 0", "gx* || check_gpu_count 8")
    (members,) = classes(made).values()
    assert (members.nodes, members.gpus) == (None, 8)
    assert any("for all nodes" in line for line in made.lost)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("*", {"n07", "n08", "n19", "io1"}),
        ("n0*", {"n07", "n08"}),
        ("n?9", {"n19"}),
        ("n[01]8", {"n08"}),
        ("!n*", {"io1"}),
        ("/^n0[78]$/", {"n07", "n08"}),
        ("/0/", {"n07", "n08"}),
        ("!/^n/", {"io1"}),
        ("{n[07-08],io1}", {"n07", "n08", "io1"}),
        ("{n[8-19]}", {"n08", "n19"}),  # as wide as its end
        ("!{n[07-19]}", {"io1"}),
        ("io1", {"io1"}),
        ("!io1", {"n07", "n08", "n19"}),
    ],
)  # fmt: skip
def test_a_target_names_the_nodes_that_it_names_to_nhc(target: str, expected: set[str]) -> None:
    made = nhc(f"{target} || check_hw_swap 0 0", hosts=("n07", "n08", "n19", "io1"))
    (members,) = classes(made).values()
    assert expected <= set(members.nodes or ())
    assert {"n07", "n08", "n19", "io1"} & set(members.nodes or ()) == expected


@pytest.mark.parametrize(
    "target",
    ["{n[1-2,7]}", "{n[a-b]}", "%group%", "/(a+)+$/", "/a.*b.*c.*d/", "/[/", "/(?=n)/", "@(a|b)", "$HOST", "n;reboot",
     "{n[000000000-999999999]}"],
)  # fmt: skip
def test_a_target_that_cannot_be_evaluated_is_listed(target: str) -> None:
    made = nhc(f"{target} || check_hw_swap 0 0", "* || check_gpu_count 8", hosts=("n1",))
    (members,) = classes(made).values()
    assert (members.gpus, members.host.swap) == (8, None)
    assert lost_lines(made) == {1}


def test_other_nodes_have_the_lines_that_certainly_hold_for_them() -> None:
    classes_made = classes(nhc("!{n[1-2]} || check_gpu_count 4", "* || check_hw_swap 0 0"))
    assert {each.nodes: (each.gpus, each.host.swap) for each in classes_made.values()} == {
        ("n1", "n2"): (None, False), None: (4, False),
    }  # fmt: skip


# --- shell text ---


@pytest.mark.parametrize(
    "command",
    [
        "check_hw_swap 0 0 && reboot", "check_hw_swap 0 0; rm -rf /", "check_hw_swap $(id -u) 0",
        "check_hw_swap ${SIZE:-0} 0", "check_hw_swap $SIZE 0", "check_hw_swap 0 0 > /tmp/x", "check_hw_swap `id` 0",
        "check_hw_swap 0 '0", 'check_hw_swap "$1" 0', "check_hw_swap {0,0}", "check_hw_swap $'0' 0",
        "(check_hw_swap 0 0)", "check_hw_swap <(echo 0) 0",
        "check_hw_swap 0 0 | tee x", "check_hw_swap 0 0 &", "! check_hw_swap 0 0", "eval check_hw_swap 0 0",
        "SIZE=0 check_hw_swap 0 0", "[ -e /dev/x ]",
    ],
)  # fmt: skip
def test_shell_text_is_listed_and_never_a_value(command: str, tmp_path: Path) -> None:
    made = nhc(f"* || {command}", "* || check_gpu_count 8")
    (members,) = classes(made).values()
    assert members.host.swap is None
    assert lost_lines(made) == {1}
    assert list(tmp_path.iterdir()) == []


def test_a_variable_is_replaced_only_by_what_an_earlier_line_sets_for_the_node() -> None:
    lines = ("* || SIZE=8 # of each", '* || export A="1" B=2', "n1 || SIZE=4", "* || check_gpu_count ${SIZE}")
    classes_made = classes(nhc(*lines, hosts=("n1", "n2")))
    assert {each.nodes: each.gpus for each in classes_made.values()} == {("n1",): 4, ("n2",): 8}
    made = nhc("* || check_gpu_count $SIZE", "* || SIZE=8", "* || check_hw_swap 0 0")
    assert only("* || check_hw_swap 0 0").gpus is None
    assert lost_lines(made) == {1, 2}
    assert "which no earlier line of the file sets" in made.lost[0]


def test_variables_that_grow_are_refused() -> None:
    lines = ["* || A=xxxxxxxxxx"] + ["* || A=$A$A$A$A$A$A$A$A"] * 40
    made = nhc(*lines, "* || check_fs_free /$A 5%", "* || check_gpu_count 8")
    assert len(made.text) < 100_000
    assert all(len(line) < 1000 for line in made.lost)


def test_quotes_continued_lines_and_carriage_returns() -> None:
    members = only("* || check_dmi_data_match \\", ' "BIOS Information: Version: 1.2 #3"  # the new one')
    assert members.firmware.bios == "1.2 #3"
    assert only("* || check_gpu_count '8'\r", "\r").gpus == 8


# --- single checks ---


def test_memory_in_a_range_is_not_a_value() -> None:
    made = nhc("* || check_hw_physmem 1k 1TB", "* || check_gpu_count 8")
    assert "host.memory_gib is one value" in made.lost[0]
    assert only("* || check_hw_physmem 500gb 505gb").host.memory_gib == 502.5
    made = nhc("* || check_hw_physmem 512GB 512GB 5%")
    assert "memory_gib = 512  # line 1; NHC allows 5%" in made.text


def test_swap_may_be_forbidden_or_required() -> None:
    assert only("* || check_hw_swap 0 0").host.swap is False
    assert only("* || check_hw_swap 1b 1TB").host.swap is True
    assert "true or false" in nhc("* || check_hw_swap 0 2097152").lost[0]


def test_a_missing_mount_is_expected_also_by_a_limit_of_its_space() -> None:
    """NHC passes `check_fs_free` if nothing is mounted."""
    assert only("* || check_fs_free /scratch 200GB").host.mounts["/scratch"].min_free_gib == 200


def test_lines_that_contradict_each_other_are_listed() -> None:
    made = nhc(
        "* || check_gpu_count 8", "* || check_gpu_count 4", "* || check_fs_free /x 5%", "* || check_fs_used /x 80%"
    )
    (members,) = classes(made).values()
    assert (members.gpus, members.host.mounts["/x"].min_free_pct) == (8, 20)
    assert [line for line in made.lost if "contradicts line 1" in line]


def test_options_after_a_mount_point_are_not_taken_for_a_type() -> None:
    made = nhc("* || check_fs_mount_rw /data -t lustre -s mgs@o2ib:/fs1")
    (members,) = classes(made).values()
    assert (members.host.mounts["/data"].type, members.host.mounts["/data"].read_write) == (None, True)
    assert made.lost


#: Every check of NHC 1.4 and of its branch of development, by file, and those that Azure's health checks add.
FUNCTIONS = """
check_cmd_output check_cmd_status check_cmd_dmesg
check_dmi_data_match check_dmi_raw_data_match
check_file_contents check_file_stat check_file_test
check_fs_mount check_fs_mount_rw check_fs_mount_ro check_fs_used check_fs_free check_fs_size check_fs_inodes
check_fs_iused check_fs_ifree check_all_fs_used check_all_fs_free check_all_fs_size check_all_fs_inodes
check_all_fs_iused check_all_fs_ifree
check_hw_cpuinfo check_hw_physmem check_hw_physmem_free check_hw_swap check_hw_swap_free check_hw_mem
check_hw_mem_free check_hw_ib check_hw_gm check_hw_eth check_hw_mcelog
check_moab_sched check_moab_rm check_moab_torque
check_net_ping check_net_socket check_net_link
check_nv_healthmon check_nvsmi_healthmon check_nvgpu_smi
check_ps_blacklist check_ps_cpu check_ps_daemon check_ps_kswapd check_ps_loadavg check_ps_mem check_ps_physmem
check_ps_service check_ps_time check_ps_unauth_users check_ps_userproc_lineage
check_gpfs_health
check_gpu_count check_gpu_xid check_gpu_ecc check_gpu_persistence check_gpu_clock_throttling check_nvlink_status
check_hw_topology check_vbios_version check_raid_health check_ib_link_flapping check_gpu_bw check_ib_bw_gdr
check_ib_bw_non_gdr check_nccl_allreduce check_nccl_allreduce_ib_loopback check_cpu_stream
"""


@pytest.mark.parametrize("function", FUNCTIONS.split())
def test_every_check_of_nhc_is_converted_or_has_a_reason_of_its_own(function: str) -> None:
    made = nhc("* || check_hw_swap 0 0", f"* || {function} ARGUMENT")
    assert not any("is a check or command of the site" in line for line in made.lost), made.lost


@pytest.mark.parametrize(
    ("target", "nodes"),
    [
        ("*", {"gx101", "gx102", "login1"}), ("gx10[12]", {"gx101", "gx102"}), ("!login*", {"gx101", "gx102"}),
        ("/^gx/", {"gx101", "gx102"}), ("!/^gx/", {"login1"}), ("{gx[101-102]}", {"gx101", "gx102"}),
        ("{gx101,gx102}", {"gx101", "gx102"}), ("gx101", {"gx101"}), ("!{gx[101-102]}", {"login1"}),
    ],
)  # fmt: skip
def test_targets_in_all_forms_of_the_documentation(target: str, nodes: set[str]) -> None:
    made = nhc("# all", f"{target} || check_hw_swap 0 0  # off", "   ", hosts=("gx101", "gx102", "login1"))
    declared = {name for members in classes(made).values() for name in members.nodes or ()}
    assert declared == nodes
    assert made.lost == ()


def test_covered_checks_name_checks_that_exist() -> None:
    ids = {check.id for check in registry().checks}
    for reason in _COVERED.values():
        for name in re.findall(r"[a-z]+\.[a-z-]+", reason):
            assert name in ids, name


# --- gcm ---


def test_a_manifest_becomes_one_class() -> None:
    made = convert(MANIFEST.read_bytes(), "manifest.json")
    (members,) = classes(made).values()
    assert (members.nodes, members.gpus, members.hcas, members.host.nvme) == (None, 2, 2, 1)
    assert members.ports.link_layer == "InfiniBand"
    assert members.ports.rate_gbps == 400
    assert {name: rail.pci for name, rail in members.rails.items()} == {
        "mlx5_0": "0000:2b:00.0", "mlx5_1": "0000:3d:00.0",
    }  # fmt: skip
    assert made.kind == "gcm manifest"


def test_what_a_manifest_has_beyond_a_class_is_listed_with_its_line() -> None:
    made = convert(MANIFEST.read_bytes(), "manifest.json")
    text = "\n".join(made.lost)
    for line, word in ((6, "topology_critical"), (9, "interfaces"), (10, "link_width"), (11, "0000:00:1f.0"),
                       (15, "PSID"), (22, "eth.mgmt"), (24, "fans")):  # fmt: skip
        assert re.search(rf"^manifest\.json:{line}: .*{word}", text, re.M), (line, word, text)
    assert any("gpu.pcie-link" in line for line in made.covered)


@pytest.mark.parametrize(
    "text",
    ["{", "{]", '{"pci": ' + "[" * 100_000, "{} {}", '{"pci": {"a": 1e999}}}', "\ufeff{", '{"a": "\\ud800"'],
)  # fmt: skip
def test_a_manifest_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConversionError):
        convert(text.encode("utf-8", "surrogatepass"), "manifest.json")


@pytest.mark.parametrize(
    "text",
    [
        '{"pci": 1, "ib": [], "disks": "x", "eth": null}', '{"pci": {"0000:01:00.0": {"type": 7, "dev": []}}}',
        '{"ib": {"interfaces": {"a": {"mlx": "mlx5_[0-99]"}}, "link_rate": 400}}', '{"ib": {"interfaces": [1]}}',
        '{"disks": {"a": {"blockdev": 5}, "b": 3, "c": {"blockdev": "nvme0n1", "size": 5}}}',
        '{"\\u0000": "\\u001b[31m", "a\\nb": {}}',
    ],
)  # fmt: skip
def test_any_manifest_gives_a_valid_file_or_none(text: str) -> None:
    made = convert(text.encode(), "manifest.json")
    assert made.lost
    assert all(line.isprintable() for line in made.lost)
    if made.text:
        decode(made.text.encode(), "cluster.toml")


def test_a_key_that_stands_there_twice_is_listed() -> None:
    made = convert(b'{"fans": 1,\n"fans": 2, "pci": {"0000:01:00.0": {"type": "GPU"}}}', "m.json")
    assert any("twice" in line for line in made.lost)


# --- the command ---


def test_the_command_writes_a_file_that_lint_accepts(tmp_path: Path) -> None:
    output = tmp_path / "cluster.toml"
    done = run("--from", NHC, "--hosts", "gx[101-116],cpu07,login[1-2]", "-o", output)
    assert done.exit_code == 1, done.output
    assert "not converted: nhc.conf:19: " in done.output
    assert "judged without a key: nhc.conf:18: " in done.output
    lint = CliRunner().invoke(app.main, ["lint", str(output)])
    assert lint.exit_code == 0, lint.output
    assert run("--from", NHC, "-o", output).exit_code == 2
    assert run("--from", MANIFEST, "-o", output, "--force").exit_code == 1
    assert CliRunner().invoke(app.main, ["lint", str(output)]).exit_code == 0


def test_all_of_a_file_that_has_counterparts_ends_with_zero(tmp_path: Path) -> None:
    source = tmp_path / "nhc.conf"
    source.write_text("* || check_hw_swap 0 0\n* || check_nvsmi_healthmon\n")
    assert run("--from", source, "-o", tmp_path / "a.toml").exit_code == 0


def test_where_nothing_has_a_counterpart_no_file_is_written(tmp_path: Path) -> None:
    source, output = tmp_path / "nhc.conf", tmp_path / "cluster.toml"
    source.write_text("* || check_hw_gm myri0\n")
    done = run("--from", source, "-o", output)
    assert (done.exit_code, output.exists()) == (3, False)
    assert "nhc.conf:1: " in done.output


@pytest.mark.parametrize("given", [("DIR",), ("--save", "d"), ("--pods", "a=b")])
def test_a_source_comes_alone(given: tuple[str, ...], tmp_path: Path) -> None:
    assert run("--from", NHC, "-o", tmp_path / "x.toml", *given).exit_code == 2


def test_a_source_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.conf").write_bytes(b"* || check_gpu_count 8\n\xff\xfe")
    done = run("--from", tmp_path / "bad.conf", "-o", tmp_path / "x.toml")
    assert (done.exit_code, "bad.conf:2: " in done.output) == (2, True)
    assert run("--from", tmp_path / "none.conf", "-o", tmp_path / "x.toml").exit_code == 2
