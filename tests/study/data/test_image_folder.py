"""Folders of images: which files are samples, and how they are read."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from allcores_study.config import registry
from allcores_study.config.run import Entry
from allcores_study.datasets import image_folder


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


# A PNG of one pixel in red, green and blue of 16 bits each, which Pillow does not write.
SIXTEEN_BITS = b"\x89PNG\r\n\x1a\n" + b"".join(
    [
        _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)),
        _chunk(b"IDAT", zlib.compress(bytes(7))),
        _chunk(b"IEND", b""),
    ]
)


def load(folder, **options):
    return image_folder.load(None, path=str(folder), **options)


def pixels(made):
    return np.concatenate(list(made.chunks))


def test_image_folder(tmp_path):
    for part, count in (("train", 3), ("test", 2)):
        for colour in ("blue", "red"):
            folder = tmp_path / part / colour
            folder.mkdir(parents=True)
            for number in range(count):
                image = Image.new("RGB", (20, 14 + number), colour)
                image.save(folder / f"{number}.{'png' if number else 'jpg'}")
    made = load(tmp_path, size=10)
    assert made.shape == (10, 3, 10, 10)
    assert made.names == ["blue", "red"]
    middle = pixels(made)[:, :, 5, 5]
    assert all(
        (m.argmax() == 2) == (label == 0) for m, label in zip(middle, made.targets, strict=True)
    )
    facts = registry.facts(Entry("", "image_folder", {"path": str(tmp_path)}))
    assert (facts.train, facts.test, facts.class_counts) == (6, 4, [3, 3])


def images_in(folder, count, suffix="png"):
    folder.mkdir(parents=True)
    for number in range(count):
        Image.new("RGB", (8, 8)).save(folder / f"{number}.{suffix}")


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        (["train/a", "train/b", "val/a", "val/b"], "found the folders train, val; expected train"),
        (["train/a", "train/b"], "found the folders train; expected train and test"),
        (["train/a", "train/b", "test/a", "test/c"], "have different classes: b, c"),
        (["a"], "1 folder"),
        (["a", "\udcff"], "expected names in UTF-8"),
        ([], "0 folder"),
    ],
)
def test_folders_that_are_no_classes_are_refused(tmp_path, folders, message):
    for folder in folders:
        images_in(tmp_path / folder, 2)
    with pytest.raises(ValueError, match=message):
        load(tmp_path)
    assert registry.facts(Entry("", "image_folder", {"path": str(tmp_path)})) is None


def test_links_that_lead_back_add_no_images(tmp_path):
    mine, elsewhere = tmp_path / "mine", tmp_path / "elsewhere"
    images_in(elsewhere, 2)
    for name in "ab":
        images_in(mine / name, 3)
        (mine / name / "again").symlink_to(mine / name)
        (mine / name / "notes.txt").touch()
    (mine / "a" / "up").symlink_to(mine)
    (mine / "a" / "other").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(mine / "a")
    made = load(mine, size=8)
    # The link up makes none of b's images a's; what is linked from elsewhere counts once.
    assert list(made.targets).count(1) == 3
    assert list(made.targets).count(0) == 5
    assert made.notes == []
    (mine / "a" / "same.png").symlink_to(mine / "b" / "0.png")
    (note,) = load(mine, size=8).notes
    assert note == "1 of 9 images are links to other images"


def test_images_are_read_as_they_are_seen(tmp_path):
    for name in "ab":
        images_in(tmp_path / name, 1)
    wide = Image.new("RGB", (16, 8), "red")
    wide.paste("blue", (8, 0, 16, 8))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned to the right: what was left is above
    wide.save(tmp_path / "a" / "phone.jpg", exif=exif)
    top, bottom = image_folder.read_image(tmp_path / "a" / "phone.jpg", 8)[:, [1, -2], 4].T
    assert (top.argmax(), bottom.argmax()) == (0, 2)
    for mode, ink in (("RGBA", (0, 0, 0, 0)), ("LA", (0, 0))):
        icon = Image.new(mode, (8, 8), ink)
        icon.putpixel((0, 0), (*ink[:-1], 255))
        icon.save(tmp_path / "a" / f"{mode}.png")
        pixels = image_folder.read_image(tmp_path / "a" / f"{mode}.png", 8)
        assert pixels[:, 0, 0].tolist() == [0, 0, 0]
        assert pixels[:, 1:].min() == 255


def test_images_that_are_read_in_part_or_not_at_all_are_noted(tmp_path):
    for name in ("train/a", "train/b", "test/a", "test/b", "val/a", "more/a"):
        images_in(tmp_path / name, 1)
    folder = tmp_path / "train" / "a"
    (folder / "deep.png").write_bytes(SIXTEEN_BITS)
    pages = [Image.new("RGB", (8, 8)) for _ in range(3)]
    pages[0].save(folder / "scan.tif", save_all=True, append_images=pages[1:])
    Image.new("RGBA", (8, 8)).save(folder / "icon.png")
    Image.new("RGBA", (8, 8), (9, 9, 9, 255)).save(folder / "opaque.png")
    Image.new("RGB", (8, 8)).save(folder / "old.jfif", format="jpeg")
    (folder / "phone.HEIC").touch()
    images_in(folder / ".ipynb_checkpoints", 1)
    (tmp_path / "train" / ".ipynb_checkpoints").mkdir()
    made = load(tmp_path, size=8)
    assert (made.names, made.train) == (["a", "b"], 7)
    assert made.notes == [
        "not read: 1 files that end with .heic",
        "not used: more/, val/; `validation: 0.1` in a model's entry holds samples back from "
        "training",
        "1 of 9 images have several pages: the first is read",
        "1 of 9 images are transparent: they are put on white",
        "1 of 9 images have 16 bits per channel: 8 are used",
    ]


def test_images_that_cannot_be_used_are_named(tmp_path, monkeypatch):
    for name in "ab":
        images_in(tmp_path / name, 1)
    (tmp_path / "b" / "broken.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"broken\.png"):
        list(load(tmp_path).chunks)
    (tmp_path / "b" / "broken.png").unlink()
    deep = Image.fromarray(np.full((8, 8), 40000, np.uint16))
    deep.save(tmp_path / "a" / "deep.png")
    with pytest.raises(ValueError, match=r"deep\.png: mode I;16; expected 8 bits per channel"):
        list(load(tmp_path).chunks)
    (tmp_path / "a" / "deep.png").unlink()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 60)
    with pytest.raises(ValueError, match=r"0\.png: .*decompression bomb"):
        list(load(tmp_path).chunks)
