"""Images per second from file to update: allcores on all cores against the usual PyTorch loop.

Ours: shared_memory with a worker per core, in fp32 and the memory format of the model's file; then
in bf16 where the processor has instructions for it. The usual loop: fp32, contiguous, a DataLoader
with transforms per image, one process with a thread per core.
Each is a process of its own, in turn; the first epoch does not count.
"""

import statistics
import sys
import tempfile
from functools import partial

from measure import IS_SMOKE, in_a_process, in_turn, ratios, report

from allcores.machine import cores

CORES = cores.allowed()
cores.set_thread_variables(CORES)

import usual  # noqa: E402
from train_once import images, run_of, samples_per_second, train_once  # noqa: E402

from allcores_study.config import registry  # noqa: E402
from allcores_study.data import preparation, storage  # noqa: E402
from allcores_study.data.scaling import channel_statistics  # noqa: E402

# Model: what it is called, images of that size, images per step, how often.
CASES = {
    "lenet": ("LeNet", images(3200, 32), max(32, CORES), 5),
    "mobilenet": ("MobileNet", images(640, 32), max(64, CORES), 5),
    "vgg19": ("VGG-19", images(max(192, 2 * CORES), 32), max(64, CORES), 3),
    "resnet50": ("ResNet-50, 224 x 224", images(max(32, 2 * CORES), 224), max(16, CORES), 3),
}
if IS_SMOKE:
    CASES = {"lenet": ("LeNet", images(64, 16), 32, 1)}
EPOCHS = 2


def ours(precision, folder, name, dataset, batch):
    run = run_of(
        name,
        dataset,
        *["--strategy=shared_memory", f"--workers={CORES}", f"--epochs={EPOCHS}"],
        batch_size=batch,
        precision=precision,
    )
    return samples_per_second(train_once(run, folder))


def the_usual(folder, name, dataset, batch):
    opened = storage.open_dataset(f"{folder}/{dataset.label}")
    count = opened.facts.train
    mean, std = channel_statistics(opened.pixel_sums[:count], opened.inputs.shape)
    loader = usual.batches(
        usual.OneByOne(opened.inputs[:count], opened.targets[:count], mean, std), batch
    )
    channels, *size = opened.shape
    model = registry.model(name).load()(channels, tuple(size), opened.task.outputs)
    seconds = [usual.epoch_seconds(model, loader) for _ in range(EPOCHS)][1:]
    return count / statistics.mean(seconds)


def compare():
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (label, dataset, _, repeats) in CASES.items():
            preparation.prepare(dataset, folder, f"{folder}/{dataset.label}")
            ways = {
                alternative: partial(in_a_process, __file__, alternative, folder, name)
                for alternative in WAYS
            }
            throughputs = in_turn(ways, repeats)
            rows += [(f"{label}: usual loop, {CORES} threads", "samples/s", throughputs["usual"])]
            for way in [way for way in WAYS if way != "usual"]:
                what = f"{label}: shared_memory, {CORES} workers, {way}"
                ratio = ratios(throughputs[way], throughputs["usual"])
                rows += [(what, "samples/s", throughputs[way]), (f"  {way} / usual", "x", ratio)]
    report("end_to_end", rows)


WAYS = {"usual": the_usual, "fp32": partial(ours, "fp32")}
if cores.has_bf16():
    WAYS["bf16"] = partial(ours, "bf16")

if __name__ == "__main__":
    if sys.argv[1:]:
        alternative, folder, name = sys.argv[1:]
        _, dataset, batch, _ = CASES[name]
        print(WAYS[alternative](folder, name, dataset, batch))
    else:
        compare()
