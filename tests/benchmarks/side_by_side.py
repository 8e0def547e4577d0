"""Ways of doing one thing on all workers, timed in turn by the same processes."""

import itertools
import tempfile
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.distributed as dist
from measure import ratios, report, sized

from allcores.machine import cores
from allcores.parallel import launch, nodes

# LeNet's weights, MobileNet's, ResNet-50's.
LENGTHS = sized((62_000, 3_200_000, 25_600_000), (1000,))
ROUNDS = sized(9, 1)
SECONDS = sized(0.15, 0.0)  # at least, per measurement: what is short is repeated


def worker_counts():
    """2 and 4, and as many as there are cores."""
    return sized(sorted({2, 4, cores.allowed()} - {1}), [2])


def for_each_length(alternatives):
    """Cases for compare(): alternatives(length, world) with each length and number of workers."""
    return [
        (f"{length:,} floats", workers, partial(alternatives, length))
        for workers in worker_counts()
        for length in LENGTHS
    ]


def seconds(world, act, repeats):
    """How long one act takes; the slowest worker's time."""
    world.barrier()
    began = time.perf_counter()
    for _ in range(repeats):
        act()
    took = torch.tensor([(time.perf_counter() - began) / repeats])
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return float(took)


def time_all(alternatives, file, world):
    """Save {name: [seconds, ...]} of what alternatives(world) gives, which is {name: function}."""
    acts = alternatives(world)
    first = next(iter(acts.values()))
    repeats = max(1, round(SECONDS / seconds(world, first, 3)))
    for act in acts.values():
        seconds(world, act, repeats)
    timings = {name: [] for name in acts}
    for _ in range(ROUNDS):
        for name, act in acts.items():
            timings[name].append(seconds(world, act, repeats))
    if world.rank == 0:
        torch.save(timings, file)


def run_case(alternatives, workers, count=1):
    """What time_all found, with so many workers of one thread each on `count` nodes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found"
        of_node = partial(run_node, partial(time_all, alternatives, file), workers, count, folder)
        others = [get_context("fork").Process(target=of_node, args=(n,)) for n in range(1, count)]
        for other in others:
            other.start()
        of_node(0)
        for other in others:
            other.join()
        return torch.load(file)


def run_node(target, workers, count, folder, node):
    """The part of one node; all of them are on this machine, behind its loopback interface."""
    with nodes.meet(count, node, Path(folder) / "rendezvous", "lo") as met:
        launch.run_ranks(target, workers, 0, 1, nodes=met)


def compare(bench, cases, count=1):
    """Time each case and report it.

    Args:
        cases: [(what, workers, alternatives)]; each alternative is held against those before it.
        count: number of nodes that the workers are on.
    """
    rows = []
    for what, workers, alternatives in cases:
        timings = run_case(alternatives, workers, count)
        for name, values in timings.items():
            rows.append((f"{name}, {what}, {workers} workers", "ms", [1e3 * v for v in values]))
        for base, name in itertools.combinations(timings, 2):
            relative = ratios(timings[base], timings[name])
            rows.append((f"  {name}, {what}: speed relative to {base}", "x", relative))
    report(bench, rows)
