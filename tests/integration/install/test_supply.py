"""Dependencies: bounded, pinned by hash, listed; and the image's base, pinned by digest."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DIRECT = [Requirement(line) for line in PROJECT["project"]["dependencies"]]

_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")

#: Pythons and platforms for which a pin must be valid.
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def pins(text: str) -> list[tuple[Requirement, int]]:
    """Return each pin of a constraints file, and its number of hashes."""
    found = []
    for entry in re.sub(r"(?m)^#.*\n", "", text).replace("\\\n", " ").splitlines():
        hashes = _HASH.findall(entry)
        found.append((Requirement(_HASH.sub("", entry).strip()), len(hashes)))
    return found


PINS = pins((ROOT / "constraints.txt").read_text())


def wanted(marker: Marker | None, python: str) -> bool:
    """Return whether a marker is true for a Python on Linux."""
    at = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux", "extra": "",
          "platform_python_implementation": "CPython", "implementation_name": "cpython"}  # fmt: skip
    return marker is None or marker.evaluate(at)


def pinned(name: str, python: str) -> str:
    """Return the version of a distribution for a Python on Linux; empty if there is none."""
    found = [pin for pin, _ in PINS if canonicalize_name(pin.name) == canonicalize_name(name)]
    return next((next(iter(pin.specifier)).version for pin in found if wanted(pin.marker, python)), "")


@pytest.mark.parametrize("one", [*DIRECT, *map(Requirement, PROJECT["build-system"]["requires"])], ids=str)
def test_every_dependency_has_both_bounds(one: Requirement) -> None:
    assert {specifier.operator for specifier in one.specifier} == {">=", "<"}


def test_paramiko_stays_below_the_next_major_version() -> None:
    (one,) = [one for one in DIRECT if one.name == "paramiko"]
    assert not one.specifier.contains("6.0.0")
    assert one.specifier.contains(metadata.version("paramiko"))


@pytest.mark.parametrize("python", PYTHONS)
def test_the_pins_satisfy_pyproject(python: str) -> None:
    for one in DIRECT:
        if wanted(one.marker, python):
            assert one.specifier.contains(pinned(one.name, python)), f"renew constraints.txt: {one}"


@pytest.mark.parametrize("python", PYTHONS)
def test_the_pins_are_closed(python: str) -> None:
    """Dependencies of pinned distributions are pinned too, if that exact version is installed here."""
    seen = 0
    for pin, _ in PINS:
        version = pinned(pin.name, python)
        try:
            found = metadata.distribution(pin.name)
        except metadata.PackageNotFoundError:
            continue
        if found.version != version:
            continue
        seen += 1
        for line in found.requires or ():
            one = Requirement(line)
            if wanted(one.marker, python):
                assert one.specifier.contains(pinned(one.name, python)), f"{pin.name} needs {one}"
    assert seen


def test_nothing_is_pinned_that_nothing_needs() -> None:
    needed = {canonicalize_name(one.name) for one in DIRECT}
    while True:
        more = {canonicalize_name(Requirement(line).name) for name in needed for line in _requires(name)} - needed
        if not more:
            break
        needed |= more
    installed = {canonicalize_name(found.metadata["Name"]) for found in metadata.distributions()}
    assert {canonicalize_name(pin.name) for pin, _ in PINS} & installed <= needed


def _requires(name: str) -> list[str]:
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    return [line for line in lines if "extra ==" not in line]


def test_every_pin_is_exact_and_has_hashes() -> None:
    assert len(PINS) > len(DIRECT)
    for pin, hashes in PINS:
        assert [specifier.operator for specifier in pin.specifier] == ["=="]
        assert not pin.url
        assert hashes >= 1, pin.name
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert line.startswith(("#", "    --hash=sha256:")) or "==" in line, "no option, no address"


@pytest.mark.parametrize("spoilt", ["click==8.1\n", "click>=8.1 \\\n    --hash=sha256:" + "0" * 64])
def test_a_pin_without_hash_or_version_is_found(spoilt: str) -> None:
    ((pin, hashes),) = pins(spoilt)
    assert hashes == 0 or [specifier.operator for specifier in pin.specifier] != ["=="]


def test_the_list_of_parts_names_all_that_is_pinned(tmp_path: Path) -> None:
    pytest.importorskip("cyclonedx_py", reason="needs cyclonedx-bom")
    out = tmp_path / "sbom.json"
    page = (ROOT / "SECURITY.md").read_text()
    (line,) = re.findall(r"^cyclonedx-py (.*) -o sbom\.cdx\.json$", page, re.M)
    command = [sys.executable, "-m", "cyclonedx_py", *line.split(), "-o", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    bom = json.loads(out.read_text())
    assert bom["bomFormat"] == "CycloneDX"
    assert bom["metadata"]["component"]["name"] == "gpu-preflight"
    listed = {(canonicalize_name(part["name"]), part["version"]) for part in bom["components"]}
    assert listed == {(canonicalize_name(pin.name), next(iter(pin.specifier)).version) for pin, _ in PINS}
    assert {canonicalize_name(one.name) for one in DIRECT} <= {name for name, _ in listed}
    assert all("sha-256" in json.dumps(part).lower() for part in bom["components"])


def test_the_image_has_no_base_of_its_own() -> None:
    text = (ROOT / "deploy/container/Containerfile").read_text()
    assert re.findall(r"^ARG BASE.*$", text, re.M) == ["ARG BASE", "ARG BASE"]
    assert re.findall(r"^FROM .*$", text, re.M) == ["FROM ${BASE}"]
    for path in (*(ROOT / "deploy").rglob("*"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"):
        if path.is_file():
            found = re.search(r"@sha256:[0-9a-f]{6,}", path.read_text(errors="replace"))
            assert not found, f"{path.name}: a digest does not belong here"
