"""A model's recipe: the precision, memory format and number of threads with which it is fastest.

What a config leaves open as `auto` is measured on the machine that is to train, a few steps of each
combination in turn, and then used by all runs that ask the same.
"""

import dataclasses
import hashlib
import importlib.metadata
import itertools
import json
import statistics
import time
from functools import partial
from pathlib import Path

from allcores import cores
from allcores.data import write_text
from allcores.run import AUTO, RECIPE

# What `auto` chooses from; of two that are equally fast the one that stands first.
PRECISIONS = ("fp32", "bf16")
MEMORY_FORMATS = ("contiguous", "channels_last")
# What is slower than the fastest by less than this is as fast.
TOLERANCE = 0.03
# Each combination is measured so often, or as often as these seconds allow, or at least so often.
ROUNDS, SECONDS, LEAST_ROUNDS = 30, 5, 2


def question(run):
    """All that the answer depends on, as one line: the model, its batch, this machine."""
    return json.dumps(
        {
            "dataset": dataclasses.asdict(run.dataset),
            "model": dataclasses.asdict(run.model),
            "optimizer": run.optimizer.name,
            "loss": run.loss.name,
            "images": images_per_worker(run),
            **run.recipe,
            "processor": cores.processor(),
            "torch": importlib.metadata.version("torch"),
        },
        sort_keys=True,
    )


def kept(run):
    """Where the answer for a run by hand is kept."""
    digest = hashlib.sha256(question(run).encode()).hexdigest()[:8]
    return Path("results/recipes/by_hand") / f"{run.model.label}_{digest}.json"


def images_per_worker(run):
    return -(-run.batch_size // run.workers)


def candidates(run, most_threads):
    """Every recipe that the run allows, the plainest first: [{precision, ...}, ...]."""
    threads = [1 << power for power in range(most_threads.bit_length())]
    choices = {
        "threads_per_worker": threads,
        "precision": PRECISIONS,
        "memory_format": MEMORY_FORMATS,
    }
    open_or_given = [
        choices[key] if run.recipe[key] == AUTO else [run.recipe[key]] for key in choices
    ]
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*open_or_given)]


def calibrate(run, data_folder, available, file):
    """Measure what the run leaves open, and write it down.

    Args:
        available: cores that a run may have; each worker gets an equal part of them at most.
        file: JSON: {"question", "cores", "timings": [{precision, ..., images_per_second}, ...]}.
    """
    # Here and not above: the workflow asks question() without torch.
    from allcores import launch

    Path(file).parent.mkdir(parents=True, exist_ok=True)
    allowed = candidates(run, max(1, available // run.workers))
    most = max(recipe["threads_per_worker"] for recipe in allowed)
    target = partial(_measure_all, run, data_folder, allowed, available, file)
    launch.run_ranks(target, 1, 0, most, once_forked=int)


def fill_in(run, file):
    """The run with everything that is open replaced by what was measured to be fastest."""
    answer = json.loads(Path(file).read_text())
    fitting = answer["timings"]
    if run.threads_per_worker == AUTO:  # servers take threads, too
        most = max(1, answer["cores"] // run.processes)
        fitting = [timing for timing in fitting if timing["threads_per_worker"] <= most]
    best = max(timing["images_per_second"] for timing in fitting)
    chosen = next(
        timing for timing in fitting if timing["images_per_second"] >= best * (1 - TOLERANCE)
    )
    return dataclasses.replace(run, **{key: chosen[key] for key in RECIPE})


def _measure_all(run, data_folder, recipes, available, file, world):
    """Time a step of each recipe in turn, round by round; the first round is for warming up."""
    from allcores import data

    dataset = data.open_dataset(data_folder)
    steps = [_step(dataclasses.replace(run, **recipe), dataset) for recipe in recipes]
    seconds = [[] for _ in recipes]
    began = time.perf_counter()
    for done in range(1 + ROUNDS):
        if done > LEAST_ROUNDS and time.perf_counter() - began > SECONDS:
            break
        for step, found in zip(steps, seconds, strict=True):
            found.append(step())
    timings = [
        recipe | {"images_per_second": images_per_worker(run) / statistics.median(found[1:])}
        for recipe, found in zip(recipes, seconds, strict=True)
    ]
    for timing in timings:
        print(
            f"{timing['precision']}  {timing['memory_format']:13}  "
            f"{timing['threads_per_worker']} thread(s)  "
            f"{timing['images_per_second']:,.0f} images/s",
            flush=True,
        )
    answer = {"question": question(run), "cores": available, "timings": timings}
    write_text(file, json.dumps(answer, indent=1))


def _step(run, dataset):
    """A function that makes one training step of a run without anything open and times it."""
    import torch

    from allcores import losses, models, registry

    model = models.build(run, dataset)
    make_optimizer = registry.optimizers()[run.optimizer.name].load()
    optimizer = make_optimizer(model.parameters(), **run.optimizer.options)
    criterion = losses.build(run.loss.name, run.loss.options)
    count = images_per_worker(run)
    images = torch.randn(count, *dataset.images.shape[1:])
    targets = torch.randint(len(dataset.info["classes"]), (count,))

    def step():
        torch.set_num_threads(run.threads_per_worker)
        began = time.perf_counter()
        with models.precision(run):
            scores = model(images)
        criterion(scores.float(), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - began

    return step
