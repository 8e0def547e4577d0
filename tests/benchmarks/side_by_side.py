"""Ways of doing one thing on all workers, timed in turn by the same processes."""

import itertools
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from measure import ratios, report, sized

from allcores.machine import cores
from allcores.parallel import launch

ROUNDS = sized(9, 1)
SECONDS = sized(0.15, 0.0)  # at least, per measurement: what is short is repeated


def worker_counts():
    """2 and 4, and as many as there are cores."""
    return sized(sorted({2, 4, cores.allowed()} - {1}), [2])


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


def run_case(alternatives, workers):
    """What time_all found, with so many workers of one thread each."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found"
        launch.run_ranks(partial(time_all, alternatives, file), workers, 0, 1)
        return torch.load(file)


def compare(bench, cases):
    """Time each case and report it.

    Args:
        cases: [(what, workers, alternatives)]; each alternative is held against those before it.
    """
    rows = []
    for what, workers, alternatives in cases:
        timings = run_case(alternatives, workers)
        for name, values in timings.items():
            rows.append((f"{name}, {what}, {workers} workers", "ms", [1e3 * v for v in values]))
        for base, name in itertools.combinations(timings, 2):
            relative = ratios(timings[base], timings[name])
            rows.append((f"  {name}, {what}: speed relative to {base}", "x", relative))
    report(bench, rows)
