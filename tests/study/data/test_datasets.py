"""Every dataset's loader, the downloaded ones on tiny files in their real formats."""

import gzip
import hashlib
import io
import json
import multiprocessing
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import patience
import pytest
from PIL import Image
from test_image_folder import images_in

from allcores.machine.any_torchvision import import_torchvision
from allcores_study.config import checks, registry
from allcores_study.config.run import Entry
from allcores_study.data import preparation, storage
from allcores_study.data.facts import Facts
from allcores_study.datasets import _table_files

DEBIANS = Path("/usr/share/datasets/fashion-mnist")


def load(name, folder, **options):
    return registry.datasets()[name].load()(folder, **options)


def pixels(images):
    chunks = list(images.chunks)
    assert all(chunk.dtype == np.uint8 for chunk in chunks)
    joined = np.concatenate(chunks)
    assert joined.shape == images.shape
    return joined


OPTIONS = {
    "fake": {"count": 70, "test": 9, "classes": 7, "size": 12, "channels": 2},
}
FILES_NEEDED = {"image_folder", "npz", "table", "cifar10", "cifar100", "mnist", "fashion_mnist"}
FILES_NEEDED |= {"image_masks", "text"}


@pytest.mark.parametrize("name", sorted(set(registry.datasets()) - FILES_NEEDED))
def test_what_is_known_is_that_of_what_is_loaded(tmp_path, name):
    options = OPTIONS.get(name, {})
    images, said = load(name, tmp_path, **options), registry.facts(Entry("", name, options))
    assert said == Facts.of(images)
    assert (said.train, said.count) == (images.train, images.shape[0])
    assert said.shape == images.shape[1:]
    if said.task == "classification":
        assert said.class_counts == np.bincount(images.targets[: images.train]).tolist()


def test_a_file_is_read_once_for_what_is_known_of_it(tmp_path, monkeypatch):
    """Also in a later process; until its content changes, or a file is too large."""
    file, read = tmp_path / "mine.csv", []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        _table_files,
        "read",
        lambda *a, read_it=_table_files.read, **k: read.append(1) or read_it(*a, **k),
    )
    entry = Entry("mine", "table", {"path": str(file), "target": "y"})

    def known():
        monkeypatch.setattr(preparation, "_known", {})
        return preparation.facts(entry)

    file.write_text("x,y\n1,a\n2,b\n")
    assert known() == known() == preparation.facts(entry)
    assert (known().class_counts, len(read)) == ([1, 1], 1)
    file.write_text("x,y\n1,a\n2,b\n3,a\n")
    assert (known().class_counts, len(read)) == ([2, 1], 2)
    monkeypatch.setattr(preparation, "LARGE", 4)
    file.write_text("x,y\n1,a\n2,b\n3,c\n")
    assert known() is None
    preparation.prepare(entry, tmp_path, tmp_path / "data")
    assert (known().class_counts, len(read)) == ([1, 1, 1], 3)
    file.write_text("x\n1\n")
    monkeypatch.setattr(preparation, "LARGE", 1000)
    for _ in range(2):
        with pytest.raises(ValueError, match="has no column 'y'"):
            known() if len(read) == 3 else preparation.facts(entry)
    assert len(read) == 4


@pytest.mark.parametrize("name", OPTIONS)
def test_made_sets_depend_on_their_options_and_seed_alone(tmp_path, name):
    images = load(name, tmp_path, **OPTIONS[name])
    assert (images.train, images.shape[0], images.shape[2:]) == (70, 79, (12, 12))
    made, again = pixels(images), pixels(load(name, tmp_path, **OPTIONS[name]))
    assert np.array_equal(made, again)
    assert not np.array_equal(made, pixels(load(name, tmp_path, **OPTIONS[name], seed=1)))


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    path.write_bytes(header + array.tobytes())


@pytest.mark.parametrize(
    ("name", "folder"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")]
)
def test_mnist_format(tmp_path, name, folder):
    raw = tmp_path / folder / "raw"
    raw.mkdir(parents=True)
    random = np.random.default_rng(0)
    expected = {}
    for part, count in (("train", 6), ("t10k", 3)):
        images = random.integers(0, 256, (count, 28, 28), np.uint8)
        labels = random.integers(0, 10, count, np.uint8)
        expected[part] = images, labels
        write_idx(raw / f"{part}-images-idx3-ubyte", images)
        write_idx(raw / f"{part}-labels-idx1-ubyte", labels)
    made = load(name, tmp_path)
    assert made.shape == (9, 1, 28, 28)
    assert made.train == 6
    joined = np.concatenate([expected["train"][0], expected["t10k"][0]])
    assert np.array_equal(pixels(made)[:, 0], joined)
    assert list(made.targets) == [*expected["train"][1], *expected["t10k"][1]]


@pytest.mark.skipif(not DEBIANS.exists(), reason="Debian's dataset-fashion-mnist is not installed")
def test_fashion_mnist_as_debian_has_it(tmp_path):
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for file in DEBIANS.glob("*.gz"):
        (raw / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    made = load("fashion_mnist", tmp_path)
    assert (made.shape, made.train) == ((70000, 1, 28, 28), 60000)
    assert list(np.bincount(made.targets)) == [7000] * 10


CIFAR = {
    "cifar10": ("CIFAR10", "cifar-10-batches-py", "labels", "batches.meta", "label_names", 10),
    "cifar100": ("CIFAR100", "cifar-100-python", "fine_labels", "meta", "fine_label_names", 100),
}


def write_cifar(tmp_path, monkeypatch, name):
    """The archive in its real format, two images a file, and torchvision told its checksums."""
    class_name, base, key, meta, names_key, classes = CIFAR[name]
    dataset = getattr(import_torchvision("datasets"), class_name)
    random = np.random.default_rng(0)
    expected, files = [], {}
    for file, _ in dataset.train_list + dataset.test_list:
        images = random.integers(0, 256, (2, 3, 32, 32), np.uint8)
        expected.append(images)
        files[file] = pickle.dumps({"data": images.reshape(2, -1), key: [1, classes - 1]})
    files[meta] = pickle.dumps({names_key: [f"class {k}" for k in range(classes)]})
    archive = tmp_path / dataset.filename
    with tarfile.open(archive, "w:gz") as tar:
        for file, content in files.items():
            info = tarfile.TarInfo(f"{base}/{file}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))

    def md5(content):
        return hashlib.md5(content).hexdigest()

    monkeypatch.setattr(dataset, "tgz_md5", md5(archive.read_bytes()))
    for part in ("train_list", "test_list"):
        monkeypatch.setattr(
            dataset, part, [[file, md5(files[file])] for file, _ in getattr(dataset, part)]
        )
    monkeypatch.setattr(dataset, "meta", dataset.meta | {"md5": md5(files[meta])})
    return archive, np.concatenate(expected)


@pytest.mark.parametrize("name", CIFAR)
def test_cifar_format(tmp_path, monkeypatch, name):
    _, expected = write_cifar(tmp_path, monkeypatch, name)
    made = load(name, tmp_path)
    assert made.shape == (len(expected), 3, 32, 32)
    assert made.train == len(expected) - 2
    assert np.array_equal(pixels(made), expected)
    assert list(made.targets[:2]) == [1, len(made.names) - 1]
    assert made.names[1] == "class 1"


def test_a_damaged_download_is_an_error_that_names_the_folder(tmp_path, monkeypatch):
    archive, _ = write_cifar(tmp_path, monkeypatch, "cifar10")
    good = archive.read_bytes()
    archive.write_bytes(good[: len(good) // 2])
    (tmp_path / "notes.txt").touch()
    # The address of a closed port of this machine: a download that cannot succeed.
    dataset = import_torchvision("datasets").CIFAR10
    monkeypatch.setattr(dataset, "url", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    with pytest.raises(ValueError, match=f"put the original files into {tmp_path}.*notes.txt"):
        load("cifar10", tmp_path)


PIXELS, ROWS = np.zeros((9, 4, 4), np.uint8), np.arange(12.0).reshape(6, 2)
IMAGES = {"images": PIXELS, "labels": np.arange(9) % 3}
CLASSES = {"inputs": ROWS, "labels": np.arange(6) % 2}
NUMBERS = {"inputs": ROWS, "targets": np.arange(6.0)}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.zeros(2, int)}, "no array images or inputs; found labels"),
        (IMAGES | {"images": PIXELS * 1.0}, "must be uint8"),
        (IMAGES | {"images": PIXELS[:0]}, "and not empty"),
        (IMAGES | {"images": np.zeros((9, 8, 8, 3), np.uint8)}, "channels last"),
        (IMAGES | {"labels": np.arange(4) % 2}, r"labels \(4,\) do not fit images \(9, 1, 4, 4\)"),
        (IMAGES | {"labels": np.ones(9)}, r"expected \(N,\) integers from 0; found float64 \(9,\)"),
        (IMAGES | {"labels": np.arange(9) % 3 + 1}, "without 0"),
        (IMAGES | {"labels": np.arange(9) * 2**59}, "without 1"),
        (IMAGES | {"labels": np.zeros(9, int)}, "at least two"),
        (
            IMAGES | {"test_images": PIXELS, "test_labels": np.arange(9) % 4},
            r"test_labels: expected .*integers from 0 to 2; found int64 \(9,\), from 0 to 3",
        ),
        (CLASSES | {"group": np.arange(6)}, "unknown array group; did you mean groups"),
        (CLASSES | {"test_input": ROWS}, "unknown array test_input; did you mean test_inputs"),
        (CLASSES | {"images": PIXELS}, "has inputs and images; expected one of them"),
        ({"inputs": ROWS, "test_targets": ROWS}, "has no array targets"),
        (NUMBERS | {"inputs": np.zeros(6)}, r"of the shape \(N, \.\.\.\)"),
        (NUMBERS | {"inputs": np.full((6, 2), np.nan)}, r"inputs\[0, 0\] is nan"),
        (NUMBERS | {"targets": np.full(6, np.inf)}, r"targets: \[0\] is inf"),
        (NUMBERS | {"inputs": ROWS + 1.7e9}, r"inputs\[:, 0\] are numbers .* hardly tell apart"),
        (
            NUMBERS | {"inputs": (9 * ROWS + 1.7e9).astype(np.int32)},
            r"inputs\[:, 0\] are numbers .* hardly tell apart",
        ),
        (
            NUMBERS | {"test_inputs": ROWS, "test_targets": np.ones((6, 2))},
            r"test_targets: found float64 \(6, 2\), from 1 to 1, unlike targets",
        ),
        (NUMBERS | {"groups": np.zeros(3)}, r"groups must be \(6,\) integers"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "mine.npz", **arrays)
    task = "regression" if {"targets", "test_targets"} & set(arrays) else "classification"
    with pytest.raises(ValueError, match=message):
        list(load("npz", None, path=str(tmp_path / "mine.npz"), task=task).chunks)


def test_images_of_an_archive_have_a_channel_and_perhaps_a_test_set(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (9, 5, 6), np.uint8)
    of_test = {"test_images": images, "test_labels": 9 * [2]}
    np.savez(tmp_path / "mine.npz", **IMAGES | {"images": images} | of_test)
    made = load("npz", None, path=str(tmp_path / "mine.npz"))
    assert (made.shape, made.train) == ((18, 1, 5, 6), 9)
    assert np.array_equal(pixels(made)[:9, 0], images)
    said = registry.facts(Entry("", "npz", {"path": str(tmp_path / "mine.npz")}))
    assert (said.train, said.test, said.class_counts) == (9, 9, [3, 3, 3])


def test_the_answers_of_a_test_set_may_all_be_equal(tmp_path):
    of_test = {"test_inputs": ROWS, "test_targets": np.ones(6)}
    np.savez(tmp_path / "mine.npz", **NUMBERS, **of_test)
    made = load("npz", None, path=str(tmp_path / "mine.npz"), task="regression")
    assert made.targets.tolist() == [*np.arange(6.0), *np.ones(6)]


@pytest.mark.parametrize("labels", [[0.0, 1.0], [0, -1], [[0], [1]]])
def test_answers_of_a_dataset_file_that_fit_no_task_are_told(labels):
    made = load("fake", None, count=2, test=0, classes=2, size=4)
    made.targets = np.array(labels)
    with pytest.raises(ValueError, match="expected labels"):
        Facts.of(made)


def test_a_dataset_of_another_version_is_prepared_again(tmp_path):
    entry = Entry("t", "fake", {"count": 9, "size": 8, "classes": 3, "test": 0})
    preparation.prepare(entry, tmp_path, tmp_path / "made")
    file = tmp_path / "made" / "dataset.json"
    record = json.loads(file.read_text())
    content = {key: value for key, value in record.items() if key not in ("notes", "task")}
    file.write_text(json.dumps(content | {"classes": 3}))
    with pytest.raises(ValueError, match=r"version|damaged"):
        storage.open_dataset(tmp_path / "made")
    preparation.prepare(entry, tmp_path, tmp_path / "made")
    assert storage.open_dataset(tmp_path / "made").facts.train == 9


def test_arrays_that_are_not_used_are_named(tmp_path):
    np.savez(tmp_path / "mine.npz", **CLASSES, patient=np.arange(6))
    notes = load("npz", None, path=str(tmp_path / "mine.npz")).notes
    assert notes == ["not used: the arrays patient"]


def test_what_is_wrong_with_the_file_of_a_dataset_is_one_finding(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, images=PIXELS, labels=np.zeros(9, int))
    path.write_bytes(path.read_bytes()[:-30])
    text = f"{path}: not a file that numpy.savez wrote"
    with pytest.raises(ValueError, match=text):
        load("npz", None, path=str(path))
    config = {
        "models": {"mlp": {"batch_size": 2, "epochs": 1, "optimizer": {"name": "sgd", "lr": 0.1}}},
        "datasets": {"mine": {"name": "npz", "path": str(path)}},
        "studies": {"one": {"datasets": ["mine"], "folds": 2, "models": ["mlp"]}},
    }
    (finding,) = checks.findings(config)
    assert finding.startswith(f"datasets.mine: {text}")
    (tmp_path / "mine.csv").write_text("id,x,y\n1,2,0\n2,3,1\n3,4,0\n4,5,1\n")
    options = {"path": str(tmp_path / "mine.csv"), "target": "y", "drop": "id"}
    config["datasets"]["mine"] = {"name": "table"} | options
    (finding,) = checks.findings(config)
    assert finding == "datasets.mine.drop: found 'id'; expected a list like []"


def test_data_that_change_while_they_are_read_are_not_taken_for_the_new_ones(tmp_path, monkeypatch):
    file = tmp_path / "mine.csv"
    file.write_text("x,y\n1,a\n2,b\n")
    entry = Entry("mine", "table", {"path": str(file), "target": "y"})
    read = _table_files.read

    def changing(path, **options):
        frame = read(path, **options)
        file.write_text("x,y\n5,a\n6,b\n")
        return frame

    monkeypatch.setattr(_table_files, "read", changing)
    with pytest.raises(ValueError, match=r"mine\.csv was changed while it was being read"):
        preparation.prepare(entry, tmp_path, tmp_path / "data")
    assert not (tmp_path / "data" / "dataset.json").exists()
    preparation.prepare(entry, tmp_path, tmp_path / "data")
    assert storage.open_dataset(tmp_path / "data").inputs[:, 0].tolist() == [5, 6]


def test_a_dataset_is_made_anew_when_a_file_of_it_changes(tmp_path):
    for name in "ab":
        images_in(tmp_path / "mine" / name, 3)
    entry = Entry("mine", "image_folder", {"path": str(tmp_path / "mine"), "size": 8})

    def prepared():
        preparation.prepare(entry, tmp_path / "downloads", tmp_path / "made")
        return (tmp_path / "made" / "inputs.npy").stat().st_mtime_ns

    first = prepared()
    assert prepared() == first
    Image.new("RGB", (8, 8), "red").save(tmp_path / "mine" / "a" / "more.png")
    second = prepared()
    assert second != first
    replaced = tmp_path / "mine" / "a" / "0.png"
    Image.new("RGB", (8, 8), "blue").save(replaced)
    os.utime(replaced, ns=(1, 1))
    third = prepared()
    assert third not in (first, second)
    replaced.unlink()
    assert prepared() != third


def test_a_class_without_a_sample_is_counted(tmp_path):
    few = Entry("few", "fake", {"count": 4, "test": 1, "size": 4, "classes": 9})
    preparation.prepare(few, tmp_path, tmp_path / "made")
    assert len(storage.read_record(tmp_path / "made").content["class_counts"]) == 9


def test_whoever_has_a_dataset_mapped_keeps_it(tmp_path):
    """Preparing it again, smaller, takes no page away from those who are training on it."""
    tiny = Entry("t", "fake", {"count": 5000, "size": 16, "classes": 3, "test": 0})
    preparation.prepare(tiny, tmp_path, tmp_path / "made")
    opened = storage.open_dataset(tmp_path / "made")
    before = opened.inputs.sum()
    small = Entry("t", "fake", {"count": 9, "size": 8, "classes": 3, "test": 0})
    preparation.prepare(small, tmp_path, tmp_path / "made")
    assert opened.inputs.sum() == before
    assert len(storage.open_dataset(tmp_path / "made").inputs) == 9


def test_many_first_calls_at_once_prepare_it_once(tmp_path):
    made = multiprocessing.get_context("fork").Queue()

    def call():
        preparation.prepare(Entry("d", "digits", {}), tmp_path, tmp_path / "made")
        made.put((tmp_path / "made" / "inputs.npy").stat().st_ino)

    processes = [multiprocessing.get_context("fork").Process(target=call) for _ in range(8)]
    for process in processes:
        process.start()
    inodes = {made.get(timeout=patience.seconds(60)) for _ in processes}
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    assert len(inodes) == 1


def test_prepare_keeps_each_download_in_a_folder_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "downloads" / "cifar10").mkdir(parents=True)
    write_cifar(tmp_path / "downloads" / "cifar10", monkeypatch, "cifar10")
    preparation.prepare(Entry("c", "cifar10", {}), tmp_path / "downloads", tmp_path / "made")
    assert (tmp_path / "made" / "dataset.json").exists()
