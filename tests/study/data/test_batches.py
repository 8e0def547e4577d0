"""Which samples each worker sees, and what it makes of their pixels."""

import itertools

import numpy as np
import pytest
import torch

from allcores.loop.sharding import shards, shuffled
from allcores_study.data.batches import Batches, dropout_seed

INDICES = np.arange(100, 153)  # 53 of them


def test_order_depends_on_seed_and_epoch_alone():
    def order(seed, epoch):
        return [list(shard.samples) for shard in shards(shuffled(INDICES, seed, epoch), 10, 0, 1)]

    assert order(0, 0) == order(0, 0)
    assert len({str(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


def test_dropout_differs_between_seeds_epochs_and_ranks():
    assert len({dropout_seed(*indices) for indices in itertools.product(range(3), repeat=3)}) == 27


def pixels(crop=0, flip=False, size=6, count=40):
    images = np.random.default_rng(0).integers(0, 256, (count, 3, size, size), np.uint8)
    half = np.full(3, 0.5)
    result = Batches(images, half, half / 2, crop, flip)
    result.start_epoch(seed=0, epoch=0)
    return images, result


def test_plain_pixels_are_normalised():
    images, made = pixels()
    expected = (torch.from_numpy(images[:4]).double() / 255 - 0.5) / 0.25
    torch.testing.assert_close(made.plain(np.arange(4)), expected.float())


def test_all_crops_and_both_sides_are_drawn_alike_often():
    _, made = pixels(crop=2, flip=True, count=2000)
    _, counts = np.unique(made.corners, return_counts=True)
    assert counts / 4000 == pytest.approx([0.2] * 5, abs=0.03)
    assert made.flips.mean() == pytest.approx(0.5, abs=0.05)


def test_every_augmented_image_is_a_shifted_or_mirrored_original():
    images, made = pixels(crop=2, flip=True)
    samples = np.arange(len(images))
    augmented = made.augmented(samples)
    padded = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2)))
    transforms = set()
    for sample in samples:
        windows = {
            (top, left, mirrored): made.scaled(
                torch.from_numpy(
                    padded[sample, :, top : top + 6, left : left + 6][
                        :, :, :: -1 if mirrored else 1
                    ].copy()[None]
                )
            )[0]
            for top in range(5)
            for left in range(5)
            for mirrored in (False, True)
        }
        matches = [k for k, window in windows.items() if torch.equal(window, augmented[sample])]
        assert len(matches) == 1
        transforms.add(matches[0])
    assert len(transforms) > 20, "the samples of a batch are augmented differently"
    assert {mirrored for *_, mirrored in transforms} == {False, True}


def test_augmentation_belongs_to_seed_epoch_and_sample():
    _, made = pixels(crop=2, flip=True)
    whole = made.augmented(np.arange(40))
    assert torch.equal(made.augmented(np.array([31, 4])), whole[[31, 4]])
    for seed, epoch in ((0, 1), (1, 0)):
        made.start_epoch(seed, epoch)
        assert not torch.equal(made.augmented(np.arange(40)), whole)
    made.start_epoch(0, 0)
    assert torch.equal(made.augmented(np.arange(40)), whole)
