"""Every dataset's loader, the downloaded ones on tiny files in their real formats."""

import gzip
import hashlib
import io
import pickle
import tarfile

import numpy as np
import pytest
from PIL import Image

from allcores import datasets, registry
from allcores.datasets import _torchvision
from allcores.lean_torch import import_torchvision
from allcores.run import Choice


def load(name, folder, **options):
    return registry.datasets()[name].load()(folder, **options)


def pixels(images):
    chunks = list(images.chunks)
    assert all(chunk.dtype == np.uint8 for chunk in chunks)
    joined = np.concatenate(chunks)
    assert joined.shape == images.shape
    return joined


def test_digits(tmp_path):
    images = load("digits", tmp_path)
    assert images.shape == (1797, 1, 32, 32)
    assert pixels(images).max() == 255
    assert (
        np.bincount(images.labels).min()
        == registry.outline(Choice("", "digits", {})).smallest_class
    )


OPTIONS = {
    "fake": {"count": 70, "test": 9, "classes": 7, "size": 12},
    "synthetic": {"count": 70, "test": 9, "classes": 7, "size": 12, "channels": 2},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_made_sets(tmp_path, name):
    options = OPTIONS[name]
    images = load(name, tmp_path, **options)
    made = pixels(images)
    assert images.shape[0] == 79
    assert images.shape[2:] == (12, 12)
    outline = registry.outline(Choice("", name, options))
    assert (outline.train, outline.test) == (images.train, 79 - images.train) == (70, 9)
    assert np.bincount(images.labels[:70]).min() == outline.smallest_class == 10
    assert np.array_equal(made, pixels(load(name, tmp_path, **options)))
    assert not np.array_equal(made, pixels(load(name, tmp_path, **options, seed=1)))


def test_synthetic_can_be_learnt(tmp_path):
    """A nearest-mean classifier does well, so that accuracy means something."""
    images = load("synthetic", tmp_path, count=300, test=100, classes=4, size=16, noise=0.5)
    made = pixels(images).reshape(400, -1).astype(float)
    means = np.stack([made[:300][images.labels[:300] == k].mean(axis=0) for k in range(4)])
    nearest = ((made[300:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == images.labels[300:]).mean() > 0.8


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    path.write_bytes(gzip.compress(header + array.tobytes()))


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
        write_idx(raw / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(raw / f"{part}-labels-idx1-ubyte.gz", labels)
        for kind in ("images-idx3", "labels-idx1"):
            packed = raw / f"{part}-{kind}-ubyte.gz"
            packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    made = load(name, tmp_path)
    assert made.shape == (9, 1, 28, 28)
    assert made.train == 6
    joined = np.concatenate([expected["train"][0], expected["t10k"][0]])
    assert np.array_equal(pixels(made)[:, 0], joined)
    assert list(made.labels) == [*expected["train"][1], *expected["t10k"][1]]


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
    assert list(made.labels[:2]) == [1, len(made.classes) - 1]
    assert made.classes[1] == "class 1"


def test_a_damaged_download_is_an_error_that_names_the_folder(tmp_path, monkeypatch):
    archive, _ = write_cifar(tmp_path, monkeypatch, "cifar10")
    archive.write_bytes(archive.read_bytes()[:-10])
    monkeypatch.setattr(_torchvision, "PAUSE", 0)
    # The address of a closed port of this machine: a download that cannot succeed.
    dataset = import_torchvision("datasets").CIFAR10
    monkeypatch.setattr(dataset, "url", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    with pytest.raises(ValueError, match=f"lay the original files by hand.*{tmp_path}"):
        load("cifar10", tmp_path)


def test_npz(tmp_path):
    path = tmp_path / "mine.npz"
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (8, 5, 6), np.uint8)
    labels = np.array([0, 1, 1, 0, 2, 2, 2, 1])
    np.savez(path, images=images, labels=labels, test_images=images[:3], test_labels=labels[:3])
    made = load("npz", None, path=str(path))
    assert made.shape == (11, 1, 5, 6)
    assert made.train == 8
    assert np.array_equal(pixels(made)[:8, 0], images)
    outline = registry.outline(Choice("", "npz", {"path": str(path)}))
    assert (outline.train, outline.test, outline.smallest_class, outline.size) == (8, 3, 2, 5)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.zeros(2, int)}, "no array images; found labels"),
        ({"images": np.zeros((2, 4, 4)), "labels": np.zeros(2, int)}, "must be uint8"),
        ({"images": np.zeros((2, 4, 4), np.uint8), "labels": np.zeros(3, int)}, r"\(2,\) integers"),
        ({"images": np.zeros((0, 4, 4), np.uint8), "labels": np.zeros(0, int)}, "N > 0"),
    ],
)
def test_npz_that_does_not_fit_is_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load("npz", None, path=str(tmp_path / "mine.npz"))


def test_a_truncated_npz_is_refused(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, images=np.zeros((9, 4, 4), np.uint8), labels=np.zeros(9, int))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"mine\.npz: not a file that numpy\.savez wrote"):
        load("npz", None, path=str(path))
    assert registry.outline(Choice("", "npz", {"path": str(path)})) is None


def test_image_folder(tmp_path):
    for part, count in (("train", 3), ("test", 2)):
        for colour in ("blue", "red"):
            folder = tmp_path / part / colour
            folder.mkdir(parents=True)
            for number in range(count):
                image = Image.new("RGB", (20, 14 + number), colour)
                image.save(folder / f"{number}.{'png' if number else 'jpg'}")
    made = load("image_folder", None, path=str(tmp_path), size=10)
    assert made.shape == (10, 3, 10, 10)
    assert made.classes == ["blue", "red"]
    middle = pixels(made)[:, :, 5, 5]
    assert all(
        (m.argmax() == 2) == (label == 0) for m, label in zip(middle, made.labels, strict=True)
    )
    outline = registry.outline(Choice("", "image_folder", {"path": str(tmp_path)}))
    assert (outline.train, outline.test, outline.smallest_class) == (6, 4, 3)


def test_a_damaged_image_is_named(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "broken.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"broken\.png"):
        list(load("image_folder", None, path=str(tmp_path)).chunks)


def test_every_dataset_has_an_outline():
    needs_path = {"image_folder", "npz"}
    for name in set(registry.datasets()) - needs_path:
        assert registry.outline(Choice("", name, {})).train > 0


def test_prepare_keeps_each_download_in_a_folder_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "downloads" / "cifar10").mkdir(parents=True)
    write_cifar(tmp_path / "downloads" / "cifar10", monkeypatch, "cifar10")
    datasets.prepare(Choice("c", "cifar10", {}), tmp_path / "downloads", tmp_path / "made")
    assert (tmp_path / "made" / "dataset.json").exists()
