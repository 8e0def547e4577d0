"""Datasets at rest, folds and splits."""

import hashlib
import json
import os
from itertools import pairwise

import numpy as np
import pytest
from conftest import usual

from allcores_study.data import storage
from allcores_study.data.facts import Facts
from allcores_study.data.folds import split
from allcores_study.data.scaling import _statistics, channel_statistics
from allcores_study.data.storage import Samples


def source(count=23, test=5, classes=3, shape=(2, 4, 5)):
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (count + test, *shape), np.uint8)
    return images, Samples(
        shape=images.shape,
        chunks=[images[:10], images[10:]],
        targets=np.arange(count + test) % classes,
        train=count,
        task=usual(classes),
        names=["a", "b", "c"][:classes],
    )


def test_what_is_written_is_what_is_opened(tmp_path):
    images, made = source()
    storage.write(tmp_path, made)
    opened = storage.open_dataset(tmp_path)
    assert np.array_equal(opened.inputs, images)
    assert isinstance(opened.inputs, np.memmap)
    assert np.array_equal(opened.targets, made.targets)
    assert (opened.shape, opened.task.outputs, opened.facts.classes) == (
        (2, 4, 5),
        3,
        ["a", "b", "c"],
    )


def test_statistics_are_of_the_training_samples_alone(tmp_path):
    images, made = source()
    storage.write(tmp_path, made)
    opened = storage.open_dataset(tmp_path)
    chosen = np.array([3, 4, 9])
    mean, std = channel_statistics(opened.pixel_sums[chosen], opened.inputs.shape)
    assert mean == pytest.approx((images[chosen] / 255).mean(axis=(0, 2, 3)))
    assert std == pytest.approx((images[chosen] / 255).std(axis=(0, 2, 3)))


def test_an_image_set_of_one_colour_can_be_normalised():
    pixel_sums = np.array([[[2 * 9], [4 * 9]]] * 4)  # four 3 x 3 images of the value 2
    mean, std = channel_statistics(pixel_sums, (4, 1, 3, 3))
    assert mean == pytest.approx([2 / 255])
    assert std == [0.0]


@pytest.mark.parametrize("name", ["inputs.npy", "targets.npy", "pixel_sums.npy"])
@pytest.mark.parametrize("damage", ["truncated", "altered", "missing"])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, name, damage):
    storage.write(tmp_path, source()[1])
    storage.open_dataset(tmp_path)
    file = tmp_path / name
    content, times = bytearray(file.read_bytes()), file.stat()
    if damage == "truncated":
        file.write_bytes(content[:-1])
    elif damage == "altered":
        content[-1] ^= 1
        file.write_bytes(content)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    else:
        file.unlink()
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        storage.open_dataset(tmp_path)


def test_a_dataset_is_read_through_once_to_be_checked(tmp_path, monkeypatch):
    storage.write(tmp_path, source()[1])
    storage.open_dataset(tmp_path)
    read = []
    whole = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *args: read.append(args) or whole(*args))
    storage.open_dataset(tmp_path)
    assert not read
    (tmp_path / "targets.npy").touch()
    storage.open_dataset(tmp_path)
    assert len(read) == 1
    for damaged in ("[]", '{"x": 3', json.dumps({str(tmp_path / "targets.npy"): 1})):
        (tmp_path / "digests.json").write_text(damaged)
        storage.open_dataset(tmp_path)
    assert len(read) == 10


@pytest.mark.parametrize(("key", "value"), [("train", 25), ("shape", [20, 2, 4, 5]), ("x", 1)])
def test_an_edited_description_is_refused(tmp_path, key, value):
    storage.write(tmp_path, source()[1])
    file = tmp_path / "dataset.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    with pytest.raises(ValueError, match=r"dataset\.json is damaged"):
        storage.open_dataset(tmp_path)


def test_an_interrupted_writing_leaves_nothing_and_is_repeated(tmp_path):
    images, made = source()

    def interrupted():
        yield images[:10]
        raise KeyboardInterrupt

    made.chunks = interrupted()
    with pytest.raises(KeyboardInterrupt):
        storage.write(tmp_path, made)
    assert not list(tmp_path.iterdir())
    made.chunks = [images]
    storage.write(tmp_path, made)
    assert json.loads((tmp_path / "dataset.json").read_text())["train"] == 23


def test_writing_to_an_opened_dataset_does_not_reach_the_file(tmp_path):
    storage.write(tmp_path, source()[1])
    before = (tmp_path / "inputs.npy").read_bytes()
    images = storage.open_dataset(tmp_path).inputs
    images[0] = images[0] + 1
    assert (tmp_path / "inputs.npy").read_bytes() == before


@pytest.mark.parametrize("labels", [[0] * 27, [0] * 27 + [3], [0] * 27 + [-1]])
def test_labels_that_do_not_fit_are_refused(tmp_path, labels):
    _, made = source()
    made.targets = np.array(labels)
    with pytest.raises(ValueError, match=r"labels|targets"):
        storage.write(tmp_path, made)


@pytest.mark.parametrize("constant", [0.1, 36.6, 12345.6])
def test_a_constant_column_stays_one_however_many_samples_there_are(constant):
    inputs = np.full((200_000, 2), constant)
    inputs[::2, 1] += 1
    mean, std = _statistics(inputs, np.arange(len(inputs)))
    assert std[0] == 0
    assert std[1] == pytest.approx(0.5)
    assert mean == pytest.approx([constant, constant + 0.5])


FACTS = Facts(20, 6, (1, 2, 2))


def test_without_folds_the_datasets_own_test_set_is_held_out():
    train, test = split(FACTS, None, None, None, seed=0)
    assert list(train) == list(range(20))
    assert list(test) == list(range(20, 26))


def test_smaller_training_sets_are_nested_in_larger_ones():
    fold_of = np.arange(20) % 4
    sets = [set(split(FACTS, fold_of, 1, size, seed=0)[0]) for size in (1, 5, 11, 15)]
    assert [len(s) for s in sets] == [1, 5, 11, 15]
    assert all(small < large for small, large in pairwise(sets))
    assert all(fold_of[list(s)].tolist().count(1) == 0 for s in sets)
    assert sets[1] != set(split(FACTS, fold_of, 1, 5, seed=1)[0])
