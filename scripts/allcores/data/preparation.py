"""Prepare a dataset, unless it is there and was made from the same options, code and sources."""

import hashlib
import os
import shutil
import zipfile
from pathlib import Path

from allcores import files
from allcores.data import storage
from allcores.files import KeptDigests, cache_folder, checksum, sha256
from allcores.study import fingerprint, registry


def prepare(choice, downloads, folder):
    """Write the dataset that a Choice names into a folder, unless it is there; see storage.write.

    Of several processes that want the same one makes it, and the others wait.

    Args:
        downloads: folder for the original files, with a subfolder for each dataset.

    Raises:
        ValueError: the originals cannot be obtained, or are not the expected ones.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        files.hold(lock)
        if not _is_sound(folder, made_from(choice)):
            load = registry.datasets()[choice.name].load()
            samples = load(Path(downloads) / choice.name, **choice.options)
            for note in samples.notes:
                print(f"NOTE: {note}", flush=True)
            storage.write(folder, samples, made_from(choice))


def made_from(choice):
    """What a dataset that a Choice names is made from, as a text: options, code, files."""
    return f"{choice.to_json()} {fingerprint.of_dataset(choice.name)} {sources(choice)}"


def local_copy(folder, scratch):
    """The folder of a copy of a prepared dataset, made if there is none, or it is damaged.

    Args:
        scratch: a folder on this machine's own disk, which others may write to as well.

    Raises:
        ValueError: the dataset is not what was prepared, or somebody else has a folder in the way.
    """
    folder, own = Path(folder), Path(scratch) / f"allcores_{os.getuid()}"
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    if own.is_symlink() or own.stat().st_uid != os.getuid():
        raise ValueError(f"{own} belongs to somebody else; expected a folder of one's own")
    place = own / checksum(storage.read_info(folder))[:16]
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock:
        files.hold(lock)
        if not _is_whole(place):
            for name in (*storage.read_info(folder)["sha256"], "dataset.json"):
                shutil.copyfile(folder / name, place / f"{name}.part")
                (place / f"{name}.part").replace(place / name)
            storage.open_dataset(place)
    return place


def _is_whole(folder):
    try:
        storage.open_dataset(folder)
    except ValueError:
        return False
    return True


def _is_sound(folder, made_from):
    try:
        return storage.open_dataset(folder).info.get("made_from") == made_from
    except ValueError:
        return False


def sources(choice):
    """A digest of what is in the files that a dataset of the user's is made from; "": in none."""
    path = choice.options.get("path")
    if path is None:
        return ""
    files = [path] if Path(path).is_file() else files_below(path)
    kept = KeptDigests(cache_folder() / "digests.json", _content)
    lines = [f"{os.path.relpath(file, path)} {kept.of(file)}" for file in files]
    kept.save()
    return hashlib.sha256("\n".join(lines).encode("utf-8", "replace")).hexdigest()[:16]


def _content(file):
    """A file's SHA-256, or that of a zip archive's members: numpy.savez also stores the time."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            members = [(info.filename, info.file_size, info.CRC) for info in archive.infolist()]
        return hashlib.sha256(repr(members).encode()).hexdigest()
    return sha256(file)


def files_below(folder):
    """All files in a folder and those below it, sorted; links that lead back are not followed."""
    found, seen = [], set()
    for root, folders, names in os.walk(folder, followlinks=True):
        status = Path(root).stat()
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        found += [Path(root) / name for name in names if (Path(root) / name).is_file()]
    return sorted(found)
