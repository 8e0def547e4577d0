"""What the input pipeline costs, for LeNet on one core.

Augmenting whole batches of uint8 arrays, against the usual way: a DataLoader with torchvision's
transforms on one image at a time.
"""

import time

from measure import in_turn, ratios, report, sized

from allcores.machine import cores

cores.set_thread_variables(1)

import numpy as np  # noqa: E402
import torch  # noqa: E402
import usual  # noqa: E402

from allcores.loop.sharding import shards, shuffled  # noqa: E402
from allcores_study.data.batches import Batches  # noqa: E402
from allcores_study.models.lenet import lenet  # noqa: E402

BATCH_SIZE, IMAGES, REPEATS = 32, sized(1600, 64), 7
MEAN, STD = np.array([0.49, 0.48, 0.45]), np.array([0.25, 0.24, 0.26])

torch.set_num_threads(1)
random = np.random.default_rng(0)
images = random.integers(0, 256, (IMAGES, 3, 32, 32), np.uint8)
labels = random.integers(0, 10, IMAGES)


def whole_batches():
    pixels = Batches(images, MEAN, STD, crop=4, flip=True)
    pixels.start_epoch(0, 0)
    targets = torch.from_numpy(labels)
    for shard in shards(shuffled(np.arange(IMAGES), 0, 0), BATCH_SIZE, 0, 1):
        yield pixels.augmented(shard.samples), targets[shard.samples]


def one_by_one():
    return usual.batches(usual.OneByOne(images, labels, MEAN, STD), BATCH_SIZE)


def training(batches):
    return IMAGES / usual.epoch_seconds(lenet(3, (32, 32), 10), batches())


def input_alone(batches):
    began = time.perf_counter()
    for _ in batches():
        pass
    return IMAGES / (time.perf_counter() - began)


if __name__ == "__main__":
    throughputs = in_turn(
        {
            "ours": lambda: training(whole_batches),
            "usual": lambda: training(one_by_one),
            "ours, input only": lambda: input_alone(whole_batches),
            "usual, input only": lambda: input_alone(one_by_one),
        },
        REPEATS,
    )
    report(
        "input_pipeline",
        [
            ("LeNet end to end, whole-batch augmentation", "samples/s", throughputs["ours"]),
            ("LeNet end to end, DataLoader, image by image", "samples/s", throughputs["usual"]),
            ("end to end, ours / usual", "x", ratios(throughputs["ours"], throughputs["usual"])),
            ("input alone, whole-batch augmentation", "samples/s", throughputs["ours, input only"]),
            (
                "input alone, DataLoader, image by image",
                "samples/s",
                throughputs["usual, input only"],
            ),
        ],
    )
