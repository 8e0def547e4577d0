"""Files that are whole or not there: atomic writes, JSON with a checksum, digests of content."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import struct
from pathlib import Path

# The key of a JSON file's own checksum.
CHECKSUM = "checksum"

# What a file system says that has no flock(2), such as Lustre mounted without it, or has none now.
WITHOUT = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
# struct flock of <fcntl.h>: type, from where, first byte, all of them, no process's.
WHOLE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def write_text(path, text):
    """Write to a temporary file, then rename it: a reader sees the whole file or none."""
    beside = Path(f"{path}.part")
    try:
        beside.write_text(text)
    except OSError:  # a full disk, say
        beside.unlink(missing_ok=True)
        raise
    beside.replace(path)


def sha256(path):
    """The SHA-256 of a file's content, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum(content):
    """The SHA-256 of what JSON can hold, however its keys are ordered."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_json(path, content):
    """Write a mapping as JSON with a checksum of its own, so that damage and edits are noticed."""
    text = json.dumps(content | {CHECKSUM: checksum(content)}, indent=1, allow_nan=False)
    write_text(path, text)


def read_json(path):
    """The mapping that write_json() wrote, without its checksum.

    Raises:
        ValueError: the file is damaged, or was changed since.
        OSError: it cannot be read.
    """
    try:
        content = json.loads(Path(path).read_text())
        is_sound = content.pop(CHECKSUM) == checksum(content)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        is_sound = False
    if not is_sound:
        raise ValueError(
            f"{path} is damaged, or was changed since it was written. Delete it to make it again"
        )
    return content


def cache_folder():
    """What may be lost of a user's: ~/.cache/allcores, see the XDG Base Directory Specification.

    A user without a home has a folder that nothing can be written to.
    """
    places = os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")  # noqa: PTH111
    return Path(next(filter(os.path.isabs, places), os.devnull), "allcores")


class KeptDigests:
    """Digests of files, each computed anew only when the file has changed.

    A file has changed if its size, inode or times have; the time of its last change of status
    (ctime, see stat(2)) cannot be set back.

    Args:
        kept: JSON file that keeps them. Where it is lost, damaged or cannot be written, digests are
            computed again, no more.
        digest: a function of a path.
    """

    def __init__(self, kept, digest=sha256):
        self.kept, self.digest = Path(kept), digest
        try:
            self.known = read_json(self.kept)
        except (OSError, ValueError):
            self.known = {}
        self.is_new = False

    def of(self, path):
        """The digest of a file.

        Raises:
            OSError: it cannot be read.
        """
        path = os.path.abspath(path)  # noqa: PTH100 of a link, not of what it leads to
        state = _state(path)
        known, digest = self.known.get(path, (None, None))
        if known != state:
            digest = self.digest(path)
            self.known[path] = [state, digest]
            self.is_new = True
        return digest

    def save(self):
        """Keep what has been computed."""
        if self.is_new:
            with contextlib.suppress(OSError):  # a folder that cannot be written to, say
                self.kept.parent.mkdir(parents=True, exist_ok=True)
                there = {path: kept for path, kept in self.known.items() if Path(path).exists()}
                write_json(self.kept, there)


def _state(path):
    status = Path(path).stat()
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def hold(file, wait=True):
    """Lock a file for as long as it is open, here and in the processes that are forked from here.

    Where there is no flock(2), by a lock of the open file description (fcntl(2)), which is as
    much; the processes of a machine must not use both.

    Args:
        file: open for writing; a descriptor, or an object that has one.
        wait: until others have closed it.

    Raises:
        BlockingIOError: another one holds it.
        OSError: the file system has neither; the text says which file it was.
    """
    descriptor = file if isinstance(file, int) else file.fileno()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    except OSError as error:
        if error.errno not in WITHOUT:
            raise
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, WHOLE)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise BlockingIOError(error.errno, error.strerror) from None
        path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - need not be there
        raise OSError(
            error.errno,
            f"the file system of {path} locks no files ({error.strerror}); call snakemake with "
            "--directory on another one, or have it mounted with `flock`",
        ) from None
