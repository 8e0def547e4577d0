"""Atomic writes of files, JSON with a checksum, digests and locks of files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

# The key of a JSON file's checksum.
CHECKSUM = "checksum"

# Errors of a file system without flock(2), such as Lustre mounted without it, or out of locks.
NO_FLOCK = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


@contextlib.contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """Yield the path of a temporary file, which is renamed to `path` when the block ends.

    A reader sees the whole file or none.
    """
    part = Path(f"{path}.part")
    try:
        yield part
        replace(part, path)
    except BaseException:  # such as a full disk, which torch.save() reports by a RuntimeError
        part.unlink(missing_ok=True)
        raise


def write_text(path: str | Path, text: str) -> None:
    """Write a text file atomically, see whole()."""
    with whole(path) as part:
        part.write_text(text)


def replace(part: Any, path: str | Path) -> None:
    """Rename a file to a path, with the mode and group of the file that it replaces.

    So a group that shares results keeps sharing them. In a folder with the setgid bit, a new file
    gets the group permissions of the folder.
    """
    path = Path(path)
    here = (path if path.exists() else path.parent).stat()
    mode = here.st_mode if path.exists() else part.stat().st_mode
    if not path.exists() and here.st_mode & stat.S_ISGID:
        mode |= here.st_mode & (stat.S_IRGRP | stat.S_IWGRP)
    with contextlib.suppress(PermissionError):  # this user is not in that group
        os.chown(part, -1, here.st_gid if path.exists() else -1)
    part.chmod(stat.S_IMODE(mode))
    part.replace(path)


def sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of(content: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def checksum(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of content that JSON can hold, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_json(path: str | Path, content: Mapping[str, Any], indent: int | None = 1) -> None:
    """Write a mapping as JSON with its checksum, so that damage and edits are noticed."""
    text = json.dumps({**content, CHECKSUM: checksum(content)}, indent=indent, allow_nan=False)
    write_text(path, text)


def read_json(path: str | Path) -> dict[str, Any]:
    """Return the mapping that write_json() wrote, without its checksum.

    Raises:
        ValueError: the file is damaged, or was changed since it was written.
        OSError: it cannot be read.
    """
    return parse_json(Path(path).read_bytes(), path)


def parse_json(text: str | bytes, path: str | Path) -> dict[str, Any]:
    """Return the mapping in the text of a file that write_json() wrote.

    Args:
        path: for the message of the ValueError.
    """
    try:
        content = json.loads(text)
        is_sound = content.pop(CHECKSUM) == checksum(content)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        is_sound = False
    if not is_sound:
        raise ValueError(f"{path} is damaged, or was changed since it was written")
    return content


def cache_folder() -> Path:
    """Return the user's cache folder, ~/.cache/allcores (XDG Base Directory Specification).

    For a user without a home, it is a path that cannot be written to.
    """
    places = os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")  # noqa: PTH111
    return Path(next(filter(os.path.isabs, places), os.devnull), "allcores")


class KeptDigests:
    """Digests of files, computed again only when a file has changed.

    A file counts as changed if its size, inode or times have changed. Its ctime (see stat(2))
    cannot be set back.

    Args:
        file: JSON file that keeps them. If it is lost, damaged or cannot be written, digests are
            computed again.
        digest: function that computes the digest of the file at a path.
    """

    def __init__(self, file: Any, digest: Callable[[str], Any] = sha256) -> None:
        # Absolute, since the working directory may have changed when save() is called.
        self.file, self.digest = Path(file).absolute(), digest
        try:
            self.entries = read_json(self.file)
        except (OSError, ValueError):
            self.entries = {}
        self.is_new = False

    def of(self, path: str | Path) -> Any:
        """Return the digest of a file.

        Raises:
            OSError: it cannot be read.
        """
        path = os.path.abspath(path)  # noqa: PTH100 - resolve() follows links
        state = _state(path)
        old_state, digest = self.entries.get(path, (None, None))
        if old_state != state:
            digest = self.digest(path)
            self.entries[path] = [state, digest]
            self.is_new = True
        return digest

    def save(self) -> None:
        """Write the digests to their file, if there are new ones."""
        if self.is_new:
            with contextlib.suppress(OSError):  # such as a folder that cannot be written to
                self.file.parent.mkdir(parents=True, exist_ok=True)
                existing = {
                    path: entry for path, entry in self.entries.items() if Path(path).exists()
                }
                write_json(self.file, existing)
                self.is_new = False


def _state(path: str) -> list[int]:
    status = Path(path).stat()
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def hold(file: Any, wait: bool = True, is_shared: bool = False) -> None:
    """Lock a file for as long as it is open in this process or in one forked from it.

    Without flock(2), a lock of the open file description (fcntl(2)) does the same. The processes
    of a machine must not mix the two.

    Args:
        file: open for writing, or for reading if shared; a descriptor, or an object that has one.
        wait: whether to wait until others have closed it.
        is_shared: whether others may share the lock, and nobody hold it alone.

    Raises:
        BlockingIOError: it is locked already.
        OSError: the file system has neither kind of lock; the message names the file.
    """
    descriptor = file if isinstance(file, int) else file.fileno()
    try:
        kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, kind | (0 if wait else fcntl.LOCK_NB))
        return
    except OSError as error:
        if error.errno not in NO_FLOCK:
            raise
    # struct flock of <fcntl.h>: type, whence, start, length (0: all of it), pid (0, as required).
    kind = fcntl.F_RDLCK if is_shared else fcntl.F_WRLCK
    whole_file = struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, whole_file)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise BlockingIOError(error.errno, error.strerror) from None
        path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - need not be there
        raise OSError(
            error.errno,
            f"the file system of {path} does not lock files ({error.strerror}); run this with "
            "--directory on another one, or have it mounted with `flock`",
        ) from None
