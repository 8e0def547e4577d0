"""Images per second from file to update: allcores on all cores against the usual PyTorch loop.

Ours: shared_memory with a worker per core, precision and memory format as measured here. The usual
loop: fp32, contiguous, a DataLoader with transforms per image, one process with a thread per core.
Each is a process of its own, in turn; the first epoch does not count.
"""

import statistics
import sys
import tempfile
from functools import partial

from measure import in_turn, ratios, report

from allcores import cores, lean_torch

CORES = cores.allowed()
cores.set_thread_variables(CORES)
lean_torch.import_torch()

import torch  # noqa: E402
import usual  # noqa: E402
from conduct import conduct, images, images_per_second, run_of  # noqa: E402

from allcores import data, datasets, launch, registry  # noqa: E402

# What it is called, model, images of that size, images per step, how often.
CASES = [
    ("LeNet", "lenet", images(3200, 32), 32, 5),
    ("MobileNet", "mobilenet", images(640, 32), 64, 5),
    ("VGG-19", "vgg19", images(256, 32), 64, 3),
    ("ResNet-50, 224 x 224", "resnet50", images(48, 224), 16, 3),
]
EPOCHS = 3


def ours(folder, name, dataset, batch):
    run = run_of(
        name,
        dataset,
        *["--strategy=shared_memory", f"--workers={CORES}", f"--batch-size={batch}"],
        *[f"--epochs={EPOCHS}", "--precision=auto", "--memory-format=auto"],
    )
    return images_per_second(conduct(run, folder))


def the_usual(folder, name, dataset, batch):
    """In a forked process, so that its threads do not live on in this one."""
    file = f"{folder}/usual"

    def target(world):
        opened = data.open_dataset(f"{folder}/{dataset.label}")
        count = opened.info["train"]
        mean, std = data.channel_statistics(opened.moments[:count], opened.images.shape)
        loader = usual.batches(
            usual.OneByOne(opened.images[:count], opened.labels[:count], mean, std), batch
        )
        model = registry.model(name).load()(**opened.model_arguments)
        seconds = [usual.epoch_seconds(model, loader) for _ in range(EPOCHS)][1:]
        torch.save(count / statistics.mean(seconds), file)

    launch.run_ranks(target, 1, 0, CORES, once_forked=int)
    return torch.load(file)


if __name__ == "__main__":
    wanted = sys.argv[1:]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for label, name, dataset, batch, repeats in CASES:
            if wanted and name not in wanted:
                continue
            if not datasets.is_prepared(dataset, f"{folder}/{dataset.label}"):
                datasets.prepare(dataset, folder, f"{folder}/{dataset.label}")
            found = in_turn(
                {
                    "ours": partial(ours, folder, name, dataset, batch),
                    "usual": partial(the_usual, folder, name, dataset, batch),
                },
                repeats,
            )
            rows += [
                (f"{label}: shared_memory, {CORES} workers", "images/s", found["ours"]),
                (f"{label}: usual loop, {CORES} threads", "images/s", found["usual"]),
                ("  ours / usual", "x", ratios(found["ours"], found["usual"])),
            ]
    report("end_to_end", rows)
