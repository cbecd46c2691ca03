"""Boot files of a guest: Debian's kernel, and an initramfs of busybox and the modules for RoCE."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent

#: Tool -> Debian package, for all tools that guests and their tests need from this machine.
PACKAGES = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "cpio": "cpio",
    "zstd": "zstd",
    "modprobe": "kmod",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "rdma": "iproute2",
    "nft": "nftables",
    "ibv_devinfo": "ibverbs-utils",
    "ibstat": "infiniband-diags",
    "ib_write_bw": "perftest",
    "ping": "iputils-ping",
}

#: The cloud kernel has no rdma_rxe; rxe needs crc32_generic, without which `rdma link add` fails with "No such file".
KERNEL = "linux-image-amd64"
MODULES = (
    "virtio_pci", "virtio_net", "virtio_rng", "9pnet_virtio", "9p", "overlay", "crc32_generic", "rdma_rxe", "ib_uverbs",
    "ib_umad", "rdma_ucm", "nf_tables",
)  # fmt: skip

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class Image(NamedTuple):
    """The two files that QEMU boots."""

    kernel: Path
    initrd: Path


def missing() -> str:
    """Name the packages that are not installed; empty if all are."""
    return " ".join(package for tool, package in PACKAGES.items() if shutil.which(tool, path=_PATH) is None)


def image() -> Image:
    """Return the image, built if it is not in the cache; fetches a kernel (70 MB) with apt-get. Raises RuntimeError."""
    package = next(
        (line.split()[-1] for line in _run("apt-cache", "depends", KERNEL).splitlines() if "Depends: linux-im" in line),
        "",
    )
    if not package:
        raise RuntimeError(f"apt knows no {KERNEL}: run apt-get update")
    recipe = " ".join((package, *MODULES)) + (HERE / "init.sh").read_text(encoding="utf-8")
    name = f"{package}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "preflight-guest"
    made = Image(cache / name / "vmlinuz", cache / name / "initrd")
    if not made.initrd.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            _build(Path(folder), package)
            made.initrd.parent.mkdir(exist_ok=True)
            for file in made:
                os.replace(Path(folder) / file.name, file)
    return made


def _build(folder: Path, package: str) -> None:
    if os.getuid() == 0:  # apt fetches as a separate user, who cannot write into our folder
        folder.chmod(0o777)
    _run("apt-get", "-qq", "download", package, cwd=folder)
    archive, unpacked, root = next(folder.glob("*.deb")), folder / "kernel", folder / "root"
    _run("dpkg-deb", "-x", str(archive), str(unpacked))
    release = next((unpacked / "lib/modules").iterdir()).name
    shutil.copy(unpacked / f"boot/vmlinuz-{release}", folder / "vmlinuz")
    _run("depmod", "-b", str(unpacked), release)
    for name in ("bin", "proc", "sys", "dev", "host", "memory"):
        (root / name).mkdir(parents=True)
    busybox = shutil.which("busybox", path=_PATH)
    assert busybox
    shutil.copy(busybox, root / "bin/busybox")
    for path in _modules(unpacked, release):
        target = root / path.relative_to(unpacked)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy(unpacked / "lib/modules" / release / name, root / "lib/modules" / release / name)
    _run("depmod", "-b", str(root), release)
    shutil.copy(HERE / "init.sh", root / "init")
    (root / "init").chmod(0o755)
    _run("sh", "-c", f"find . | cpio -o -H newc --quiet | zstd -q -3 -f -o {folder}/initrd", cwd=root)


def _modules(unpacked: Path, release: str) -> set[Path]:
    """Return the files of the modules and of their dependencies."""
    found = set()
    for module in MODULES:
        listed = _run("modprobe", "-d", str(unpacked), "-S", release, "--show-depends", module)
        found |= {Path(line.split()[1]) for line in listed.splitlines() if line.startswith("insmod ")}
    return found


def _run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env={**os.environ, "PATH": _PATH}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
