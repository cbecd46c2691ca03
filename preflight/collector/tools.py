"""Search for tools. Root runs only tools that no other user can replace.

The caller of a gate sets its PATH, perhaps from a user's shell. Root therefore uses a folder of PATH or of the cluster
file only if only root can change it or any directory above it.
"""

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Tuple

#: Folders of administration tools that are not in the PATH of a user or a non-login shell.
SYSTEM_PATH = (
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    ":/opt/mellanox/iproute2/sbin:/opt/mellanox/ethtool/sbin:/opt/mellanox/mlnx-fw-updater"
    ":/opt/mellanox/mft/bin:/opt/mellanox/doca/tools:/usr/local/nvidia/bin"
)

_WRITABLE_BY_OTHERS = 0o022

_of_the_site: "List[str]" = []
_known: "Dict[str, str]" = {}
_joined: "Dict[Tuple[object, ...], str]" = {}


def also(folders: "Iterable[str]") -> None:
    """Also search these folders of the site, before those of the system."""
    _of_the_site[:] = [folder for folder in folders if folder.startswith("/") and ":" not in folder]


def search_path() -> str:
    """Return the folders that are searched for tools, in the format of PATH."""
    key = (os.environ.get("PATH", ""), tuple(_of_the_site), os.geteuid())
    if key not in _joined:
        folders = [*(folder for folder in _offered() if not distrusted(folder)), *SYSTEM_PATH.split(":")]
        _joined[key] = ":".join(sorted(set(folders), key=folders.index))
    return _joined[key]


def find(tool: str) -> str:
    """Return the path of a tool; raise FileNotFoundError or PermissionError."""
    refused = ""
    folders = [""] if "/" in tool else search_path().split(":")
    for folder in folders:
        if not folder.startswith("/") and "/" not in tool:
            continue
        path = os.path.join(folder, tool)
        if os.access(path, os.F_OK) and os.path.isfile(path):  # avoids an exception in the common case
            if os.access(path, os.X_OK):
                return path
            refused = refused or path
    if refused:
        raise PermissionError(13, "{} cannot be executed by this user".format(refused))
    what = "there is no {} in PATH or the system directories".format(tool)
    elsewhere = [folder for folder in _offered() if distrusted(folder) and os.path.isfile(os.path.join(folder, tool))]
    if elsewhere:
        raise PermissionError(13, "{}; that in {} is not run: {}".format(what, elsewhere[0], distrusted(elsewhere[0])))
    raise FileNotFoundError(2, what)


def distrusted(folder: str) -> str:
    """Return why root must not run a folder's tools; empty if it may, or if not root."""
    if os.geteuid() != 0:
        return ""
    if folder not in _known:
        _known[folder] = _theirs(folder)
    return _known[folder]


def _offered() -> "List[str]":
    offered = [*_of_the_site, *os.environ.get("PATH", "").split(":")]
    return [folder for folder in offered if folder.startswith("/")]


def _theirs(folder: str) -> str:
    """Describe who besides root can change a folder or its parents."""
    path = first = os.path.realpath(folder)
    while True:
        try:
            found = os.stat(path)
        except OSError as error:
            return "{}: {}".format(path, error.strerror)
        if found.st_uid != 0:
            return "{} belongs to user {}".format(path, found.st_uid)
        if found.st_mode & _WRITABLE_BY_OTHERS and not (found.st_mode & stat.S_ISVTX and path != first):
            return "{} is writable by users other than root".format(path)
        if path == "/":
            return ""
        path = os.path.dirname(path)
