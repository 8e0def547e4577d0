"""The ring from scratch against gloo's own all_reduce, both averaging the same vector.

Each pair of measurements is made one after the other by the same processes; the time is that of the
slowest worker.
"""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from measure import ratios, report

from allcores import cores, launch
from allcores.strategies.ring import RingAverage

LENGTHS = (62_000, 3_200_000, 25_600_000)  # LeNet's weights, MobileNet's, ResNet-50's
PAIRS = 15
SECONDS = 0.15  # at least, per measurement: short exchanges are repeated


def seconds(world, exchange, repeats):
    """How long one exchange takes, in seconds; the slowest worker's time."""
    world.barrier()
    began = time.perf_counter()
    for _ in range(repeats):
        exchange()
    took = torch.tensor([(time.perf_counter() - began) / repeats])
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return float(took)


def compare(length, file, world):
    vector = torch.randn(length)
    ring = RingAverage(vector, world)

    def by_ring():
        ring.reduce_scatter()
        ring.all_gather()

    def by_gloo():
        dist.all_reduce(vector)
        vector.div_(world.workers)

    repeats = max(1, round(SECONDS / seconds(world, by_gloo, 3)))
    seconds(world, by_ring, repeats)
    pairs = [[seconds(world, each, repeats) for each in (by_gloo, by_ring)] for _ in range(PAIRS)]
    if world.rank == 0:
        torch.save(pairs, file)


if __name__ == "__main__":
    rows = []
    for workers in sorted({2, 4, cores.allowed()} - {1}):
        for length in LENGTHS:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "pairs"

                def target(world, length=length, file=file):
                    compare(length, file, world)

                launch.run_ranks(target, workers, 0, 1, once_forked=int)
                gloo, ring = zip(*torch.load(file), strict=True)
            where = f"{length:,} floats, {workers} workers"
            rows += [
                (f"gloo all_reduce, {where}", "ms", [1e3 * value for value in gloo]),
                (f"ring, {where}", "ms", [1e3 * value for value in ring]),
                ("ring's speed relative to gloo's", "x", ratios(gloo, ring)),
            ]
    report("ring", rows)
