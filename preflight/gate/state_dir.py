"""The state directory, in which no other user controls what root reads or writes.

Imported before every job: imports only ``os``.
"""

from __future__ import annotations

import _thread
import os
import stat

from preflight.errors import PreflightError

#: State directory of root (file-hierarchy(7)); other users have ``$XDG_STATE_HOME`` (XDG Base Directory Specification).
ROOT = "/var/lib/preflight"

_WRITABLE_BY_OTHERS = 0o022


class StateDirError(PreflightError):
    """The directory or a file in it must not be used; the text has the reason."""


def locate(given: str | None) -> str:
    """Return the state directory: as given, ``$STATE_DIRECTORY``, or the user's.

    systemd sets the variable (systemd.exec(5)). Raises StateDirError if the user has none.
    """
    configured = given or os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    if configured:
        return os.path.abspath(configured)
    if os.geteuid() == 0:
        return ROOT
    base, home = os.environ.get("XDG_STATE_HOME", ""), os.environ.get("HOME", "")
    if not base.startswith("/"):
        if not home.startswith("/"):
            raise StateDirError(
                "no state directory: neither --state-dir, $STATE_DIRECTORY, $XDG_STATE_HOME nor $HOME is set"
            )
        base = f"{home}/.local/state"
    return f"{base}/preflight"


class StateDir:
    """An open state directory.

    Its files must be regular, owned by this user, linked once, and not writable by others.
    """

    def __init__(self, path: str, *, create: bool = False) -> None:
        """Open the directory, or create it (0700); raises StateDirError."""
        self.path = path
        try:
            _trusted_parents(path)
            if create:
                _make(path)
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise StateDirError(f"state directory {path} does not exist yet") from None
        except OSError as error:
            raise StateDirError(f"state directory {path}: {error.strerror}") from None
        info = os.fstat(self._fd)
        if info.st_uid != os.geteuid():
            why = f"belongs to user {info.st_uid}, not to {os.geteuid()}"
        elif info.st_mode & _WRITABLE_BY_OTHERS:
            why = f"is writable by others (mode {stat.S_IMODE(info.st_mode):o}): chmod 700"
        else:
            return
        os.close(self._fd)
        raise StateDirError(f"state directory {path}: {why}")

    def close(self) -> None:
        """Close the directory."""
        os.close(self._fd)

    def read(self, name: str, most: int) -> bytes:
        """Return a file of at most ``most`` bytes.

        Raises FileNotFoundError or StateDirError.
        """
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._fd)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StateDirError(f"{self.path}/{name}: {error.strerror}") from None
        try:
            self._ours(name, os.fstat(fd), most)
            with os.fdopen(fd, "rb", buffering=0, closefd=False) as stream:
                return stream.read(most) or b""
        except OSError as error:
            raise StateDirError(f"{self.path}/{name}: {error.strerror}") from None
        finally:
            os.close(fd)

    def written(self, name: str) -> float:
        """Return when a file was written, in seconds since 1970; raises OSError."""
        return os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mtime

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically; raises StateDirError."""
        temporary = f".{name}.{_thread.get_native_id()}"  # the deadline thread may write as well
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            try:
                fd = os.open(temporary, flags, 0o600, dir_fd=self._fd)
            except FileExistsError:  # left by a process that was killed
                os.unlink(temporary, dir_fd=self._fd)
                fd = os.open(temporary, flags, 0o600, dir_fd=self._fd)
            try:
                while data:
                    data = data[os.write(fd, data) :]
            finally:
                os.close(fd)
            os.rename(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except OSError as error:
            self.remove(temporary)
            raise StateDirError(f"{self.path}/{name} cannot be written: {error.strerror}") from None

    def remove(self, name: str) -> None:
        """Remove a file; errors are ignored."""
        try:
            os.unlink(name, dir_fd=self._fd)
        except OSError:
            return

    def lock(self, name: str) -> int | None:
        """Take a lock until this process ends, without waiting.

        Return the file descriptor, or None if another process holds the lock. Raises StateDirError.
        """
        import fcntl

        try:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._fd)
        except OSError as error:
            raise StateDirError(f"{self.path}/{name}: {error.strerror}") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd

    def _ours(self, name: str, info: os.stat_result, most: int) -> None:
        why = ""
        if not stat.S_ISREG(info.st_mode):
            why = "is not a regular file"
        elif info.st_uid != os.geteuid():
            why = f"belongs to user {info.st_uid}"
        elif info.st_mode & _WRITABLE_BY_OTHERS:
            why = "is writable by others"
        elif info.st_nlink != 1:
            why = "has another name elsewhere (a hard link)"
        elif info.st_size > most:
            why = f"is longer than {most} bytes"
        if why:
            raise StateDirError(f"{self.path}/{name} {why}")


def _make(path: str) -> None:
    """Create a directory and its parents, accessible only to the owner."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    except FileNotFoundError:
        _make(os.path.dirname(path))
        os.mkdir(path, 0o700)


def _trusted_parents(path: str) -> None:
    """Raise StateDirError if another user could replace the directory.

    Root and this user may do so.
    """
    ancestor = ""
    for part in os.path.dirname(path).split("/")[1:]:
        ancestor = f"{ancestor}/{part}"
        try:
            info = os.lstat(ancestor)
        except FileNotFoundError:
            return
        if info.st_uid not in (0, os.geteuid()):
            raise StateDirError(f"state directory {path}: {ancestor} belongs to user {info.st_uid}")
        if stat.S_ISLNK(info.st_mode):
            _trusted_parents(os.path.realpath(ancestor) + "/.")
        elif info.st_mode & _WRITABLE_BY_OTHERS and not info.st_mode & stat.S_ISVTX:
            raise StateDirError(f"state directory {path}: {ancestor} is writable by others")
