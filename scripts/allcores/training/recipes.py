"""A model's recipe: the precision, memory format and number of threads with which it is fastest.

Whatever is `auto` in a config is measured on the machine that will train, a few steps of each
combination in turn; the result is used by all runs with the same cache key.
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

from allcores.files import write_text
from allcores.machine import cores
from allcores.study.run import AUTO, RECIPE

# What `auto` chooses from; among equally fast ones the first in this order wins.
PRECISIONS = ("fp32", "bf16")
MEMORY_FORMATS = ("contiguous", "channels_last")
# Recipes within this share of the fastest count as equally fast.
TOLERANCE = 0.03
# Rounds of measuring: at most ROUNDS, no new one after SECONDS, but at least LEAST_ROUNDS.
ROUNDS, SECONDS, LEAST_ROUNDS = 30, 5, 1


def cache_key(run):
    """The cache key of a recipe, a JSON text: the model, its batch, the processor, torch."""
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


def file_name(run):
    """The name of the file that caches the recipe of a run."""
    digest = hashlib.sha256(cache_key(run).encode()).hexdigest()[:8]
    return f"{run.model.label}_{digest}.json"


def images_per_worker(run):
    return -(-run.batch_size // run.workers)


def candidates(run, most_threads):
    """Every recipe that the run allows, the plainest first: [{precision, ...}, ...]."""
    powers = [1 << power for power in range(most_threads.bit_length())]
    threads = sorted({*powers, most_threads})
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
    """Measure what is `auto` in a run, and write it down.

    Args:
        available: number of cores that a run may use; a worker gets an equal part of them at most.
        file: where to write the JSON {"cache_key", "timings": [{precision, ...,
            images_per_second}, ...]}.
    """
    # Here and not above: the workflow asks cache_key() without torch.
    from allcores.machine import leases
    from allcores.parallel import launch

    Path(file).parent.mkdir(parents=True, exist_ok=True)
    allowed = candidates(run, max(1, available // run.workers))
    most = max(recipe["threads_per_worker"] for recipe in allowed)
    target = partial(_measure_all, run, data_folder, allowed, file)
    with leases.leased(min(available, most * run.workers)):
        launch.run_ranks(target, 1, 0, most, once_forked=int)


def fill_in(run, file, available):
    """The run with everything that is `auto` replaced by what was measured to be fastest.

    Args:
        file: what calibrate() wrote.
        available: number of cores that the run may use now.

    Raises:
        ValueError: the file holds no measurement.
    """
    try:
        fitting = json.loads(Path(file).read_text())["timings"]
        sound = all({*RECIPE, "images_per_second"} <= set(timing) for timing in fitting)
    except (ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        raise ValueError(f"{file} holds no measurement. Delete it to measure again")
    if run.threads_per_worker == AUTO:  # servers take threads, too
        most = max(1, available // run.processes)
        fitting = [timing for timing in fitting if timing["threads_per_worker"] <= most]
    best = max(timing["images_per_second"] for timing in fitting)
    chosen = next(
        timing for timing in fitting if timing["images_per_second"] >= best * (1 - TOLERANCE)
    )
    return dataclasses.replace(run, **{key: chosen[key] for key in RECIPE})


def _measure_all(run, data_folder, recipes, file, world):
    """Time a step of each recipe in turn, in rounds, after one untimed step of each as warm-up."""
    from allcores.data import storage
    from allcores.training import models

    dataset = storage.open_dataset(data_folder)
    formats = {recipe["memory_format"] for recipe in recipes}
    model_in = {
        name: models.build(dataclasses.replace(run, memory_format=name), dataset)
        for name in formats
    }
    steps, problem = [], None
    for recipe in recipes:
        step = _step(dataclasses.replace(run, **recipe), model_in[recipe["memory_format"]], dataset)
        try:
            step()
            steps.append((recipe, step, []))
        except RuntimeError as error:  # a model that calls view(), say, suits one format only
            problem = error
            print(f"{_name(recipe)}  does not work: {error}", flush=True)
    if not steps:
        raise problem
    began = time.perf_counter()
    for done in range(ROUNDS):
        if done >= LEAST_ROUNDS and time.perf_counter() - began > SECONDS:
            break
        for _, step, seconds in steps:
            seconds.append(step())
    timings = [
        recipe | {"images_per_second": images_per_worker(run) / statistics.median(seconds)}
        for recipe, _, seconds in steps
    ]
    for timing in timings:
        print(f"{_name(timing)}  {timing['images_per_second']:,.0f} images/s", flush=True)
    write_text(file, json.dumps({"cache_key": cache_key(run), "timings": timings}, indent=1))


def _name(recipe):
    return (
        f"{recipe['precision']}  {recipe['memory_format']:13}  "
        f"{recipe['threads_per_worker']} thread(s)"
    )


def _step(run, model, dataset):
    """A function that makes one training step of a run without `auto` and times it."""
    import torch

    from allcores.study import registry
    from allcores.training import losses, models

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
