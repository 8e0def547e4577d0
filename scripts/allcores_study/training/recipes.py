"""A model's recipe: the precision, memory format and number of threads with which it is fastest.

Each `auto` in a config is measured on the machine that will train, by timing a few steps of each
combination in turn. All runs with the same cache key use the result.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import itertools
import json
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores.machine import cores
from allcores_study.config.run import AUTO, digest
from allcores_study.records import fingerprint
from allcores_study.records.identity import Record

if TYPE_CHECKING:
    from torch.nn import Module

    from allcores.parallel.world import World
    from allcores_study.config.run import Run
    from allcores_study.data.storage import Dataset

# What `auto` chooses from; among equally fast ones the first wins.
PRECISIONS = ("fp32", "bf16")
MEMORY_FORMATS = ("contiguous", "channels_last")
# Recipes within this share of the fastest count as equally fast.
TOLERANCE = 0.03
# bf16 rounds: it is chosen only if it is faster by this factor.
WORTH_ROUNDING = 1.1
# A recipe that is HOPELESS times slower than the best is not timed again, but only after
# LEAST_ROUNDS timings: a single step may have been disturbed.
HOPELESS, LEAST_ROUNDS = 2.0, 3
# Rounds of measuring: at most ROUNDS, no new one after SECONDS.
ROUNDS, SECONDS = 20, 1.5
# A step has fewer images if a whole batch would take longer than this (seconds).
LONGEST_STEP = 0.5


def cache_key(run: Run, processor: str | None = None) -> str:
    """Return the cache key of a recipe: model, batch, processor, torch and code, as a JSON text.

    Args:
        processor: its name; None: that of this machine.
    """
    run = _representative(run)
    assert run.optimizer is not None
    return json.dumps(
        {
            "dataset": dataclasses.asdict(run.dataset),
            "model": dataclasses.asdict(run.model),
            "optimizer": run.optimizer.name,
            "loss": run.loss.name,
            "images": images_per_worker(run),
            **run.recipe,
            "processor": processor or cores.processor(),
            "torch": importlib.metadata.version("torch"),
            "code": fingerprint.of_recipe(run),
        },
        sort_keys=True,
    )


def file_name(run: Run) -> str:
    """Return the name of the file that caches the recipe of a run."""
    return f"{run.model.label}_{digest(cache_key(run))}.json"


def processor_of(file: str | Path) -> str | None:
    """Return the name of the processor that a recipe file was measured on; None: damaged."""
    record = _read(file)
    return json.loads(record.made_of)["processor"] if record else None


def for_this_processor(file: str | Path) -> Path:
    """Return the file, `file` or one beside it, of the recipe for this kind of processor.

    The nodes of a cluster may have different ones; `file` is from the node that measured first.
    """
    file = Path(file)
    if processor_of(file) in (None, cores.processor()):  # None: fill_in() will report it
        return file
    return file.with_stem(f"{file.stem}_{digest(cores.processor())}")


def images_per_worker(run: Run) -> int:
    assert run.batch_size is not None
    return -(-run.batch_size // run.workers)


def _representative(run: Run) -> Run:
    """Return the run that is measured in place of this one: see Run.recipe_group."""
    if run.threads_per_worker == AUTO:
        return run
    return dataclasses.replace(run, workers=1, servers=0, nodes=1, threads_per_worker=1)


def candidates(
    run: Run, most_threads: int, precisions: tuple[str, ...] = PRECISIONS
) -> list[dict[str, Any]]:
    """Return every recipe that the run allows, the plainest first: [{precision, ...}, ...]."""
    choices = {
        "threads_per_worker": thread_counts(most_threads),
        "precision": precisions,
        "memory_format": MEMORY_FORMATS,
    }
    options = [choices[key] if run.recipe[key] == AUTO else [run.recipe[key]] for key in choices]
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*options)]


def thread_counts(most: int) -> list[int]:
    """Return the numbers of threads that are timed: powers of two, and the most."""
    return sorted({*(1 << power for power in range(most.bit_length())), most})


def calibrate(run: Run, data_folder: str | Path, available: int, file: str | Path) -> None:
    """Measure what is `auto` in a run, and write the result.

    Args:
        available: number of cores that a run may use; a worker gets at most an equal share.
        file: where to write the Record, made of the cache_key(), with `cores` and `timings`:
            [{precision, ..., images_per_second}, ...].
    """
    run = _representative(run)
    # Not at the top: the workflow calls cache_key() without torch.
    from allcores.machine import leases
    from allcores.parallel import launch

    Path(file).parent.mkdir(parents=True, exist_ok=True)
    most = max(1, available // run.workers_on_node) if run.threads_per_worker == AUTO else 1
    target = partial(_measure_all, run, data_folder, available, most, file)
    with leases.leased(most):
        launch.run_ranks(target, 1, 0, most)


def is_of(file: str | Path, run: Run, available: int, processor: str | None = None) -> bool:
    """Return whether a file has the fastest recipe of a run for that many cores.

    Args:
        processor: name of the processor; None: this machine's.
    """
    record, key = _read(file), cache_key(run, processor)
    return bool(record) and record.is_up_to_date(key) and record.content["cores"] >= available  # type: ignore[union-attr]


def is_sound(file: str | Path) -> bool:
    """Return whether a file exists and contains what calibrate() wrote."""
    return bool(_read(file))


def cores_measured(file: str | Path) -> int:
    """Return for how many cores a file has the fastest recipe; 0: it is missing or damaged."""
    record = _read(file)
    return record.content["cores"] if record else 0


def _read(file: str | Path) -> Record | None:
    """Return the Record that calibrate() wrote; None: the file is missing or damaged."""
    try:
        return Record.read(file)
    except (OSError, ValueError):
        return None


def fill_in(run: Run, file: str | Path, available: int) -> Run:
    """Return the run with each `auto` replaced by the fastest value that was measured.

    Args:
        file: what calibrate() wrote.
        available: number of cores that the run may use now, on each node.

    Raises:
        ValueError: the file contains no measurement.
    """
    record = _read(file)
    if not record:
        raise ValueError(f"{file} contains no measurement; delete it to measure again")
    timings = record.content["timings"]
    if run.threads_per_worker == AUTO:  # servers also take threads
        most = max(1, available // -(-run.processes // run.nodes))
        timings = [timing for timing in timings if timing["threads_per_worker"] <= most]
    exact = [timing for timing in timings if timing["precision"] == PRECISIONS[0]]
    if exact and _fastest(timings) < WORTH_ROUNDING * _fastest(exact):
        timings = exact
    best = _fastest(timings)
    chosen = next(
        timing for timing in timings if timing["images_per_second"] >= best * (1 - TOLERANCE)
    )
    return dataclasses.replace(
        run, **{key: chosen[key] for key, value in run.recipe.items() if value == AUTO}
    )


def _fastest(timings: list[dict[str, Any]]) -> float:
    return max(timing["images_per_second"] for timing in timings)


def _measure_all(
    run: Run,
    data_folder: str | Path,
    available: int,
    most_threads: int,
    file: str | Path,
    world: World,
) -> None:
    """Time a step of each recipe in turn, in rounds, after one untimed step of each as warm-up."""
    from allcores_study.data import storage

    dataset = storage.open_dataset(data_folder)
    steps, count = _steps(run, candidates(run, most_threads, precisions()), dataset)
    best, began = math.inf, time.perf_counter()
    for done in range(ROUNDS):
        for _, step, seconds in steps:
            late = done and time.perf_counter() - began > SECONDS
            if late or (len(seconds) >= LEAST_ROUNDS and min(seconds) > HOPELESS * best):
                continue
            seconds.append(step())
            best = min(best, seconds[-1])
    # The least time, because disturbances can only add to it.
    timings = [recipe | {"images_per_second": count / min(seconds)} for recipe, _, seconds in steps]
    for timing in timings:
        print(f"{_name(timing)}  {timing['images_per_second']:,.0f} samples/s", flush=True)
    Record(cache_key(run), content={"cores": available, "timings": timings}).write(file)


def precisions() -> tuple[str, ...]:
    """Return the precisions for which this processor has instructions.

    Without them, a step in bf16 takes minutes. With ATEN_CPU_CAPABILITY=avx2, torch computes as on
    a processor without them.
    """
    import torch

    has_bf16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    may_use = torch.backends.cpu.get_cpu_capability() in ("AVX512", "AMX")
    return PRECISIONS if has_bf16 and may_use else PRECISIONS[:1]


def _steps(
    run: Run, recipes: list[dict[str, Any]], dataset: Dataset
) -> tuple[list[tuple[dict[str, Any], Callable[[], float], list[float]]], int]:
    """Return ([(recipe, function that makes and times a step, []), ...], images per step)."""
    from allcores_study.training import models

    formats = {recipe["memory_format"] for recipe in recipes}
    model_in = {
        name: models.build(
            dataclasses.replace(run, memory_format=name),
            dataset.shape,
            dataset.task.outputs,
            dataset.vocabulary_size,
        )
        for name in formats
    }
    has_planes = any(p.ndim == 4 for model in model_in.values() for p in model.parameters())
    if not has_planes and MEMORY_FORMATS[0] in formats:  # the formats make no difference
        recipes = [recipe for recipe in recipes if recipe["memory_format"] == MEMORY_FORMATS[0]]
    steps: list[tuple[dict[str, Any], Callable[[], float], list[float]]] = []
    problem: Any = None
    count: Any = None
    for recipe in sorted(recipes, key=lambda entry: -entry["threads_per_worker"]):
        variant, model = dataclasses.replace(run, **recipe), model_in[recipe["memory_format"]]
        try:
            count = count or _affordable(variant, model, dataset)
            step = _step(variant, model, dataset, count)
            step()
            steps.append((recipe, step, []))
        except RuntimeError as error:  # a model with view(), for instance, suits only one format
            problem = error
            print(f"{_name(recipe)}  does not work: {error}", flush=True)
    if not steps:
        raise problem
    return sorted(steps, key=lambda entry: recipes.index(entry[0])), count


def _affordable(run: Run, model: Module, dataset: Dataset) -> int:
    """Return how many images a step can have; at least two, for batch norm."""
    count = images_per_worker(run)
    small_step = _step(run, model, dataset, min(2, count))
    small_step()
    return min(count, max(2, int(2 * LONGEST_STEP / small_step())))


def _name(recipe: dict[str, Any]) -> str:
    return (
        f"{recipe['precision']}  {recipe['memory_format']:13}  "
        f"{recipe['threads_per_worker']} thread(s)"
    )


def _step(run: Run, model: Module, dataset: Dataset, count: int) -> Callable[[], float]:
    """Return a function that makes one training step of a run without `auto` and times it.

    Args:
        count: number of images.
    """
    import numpy as np
    import torch

    from allcores_study.training import losses, models
    from allcores_study.training.optimizers import maker_of

    optimizer = maker_of(run)(model.parameters())
    criterion = losses.of_run(run, dataset, np.arange(dataset.info["train"]))
    inputs = torch.randn(count, *dataset.shape)
    if not dataset.info["scale"]:
        inputs = torch.from_numpy(np.resize(dataset.inputs[:count], inputs.shape))
        inputs = inputs.long() if dataset.vocabulary else inputs
    targets = dataset.task.examples(count, dataset.shape)

    def step() -> float:
        torch.set_num_threads(run.threads_per_worker)  # type: ignore[arg-type]
        began = time.perf_counter()
        with models.precision(run):
            scores = model(inputs)
        criterion(scores.float(), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - began

    return step
