"""Predict runs that take more cores than this machine has, from smaller runs that it can measure.

A step of W workers is a step of a few workers with as many samples per worker, and a longer
exchange: the strategy says how much longer (Strategy.exchange). Threads within a worker follow
Amdahl's law. The most important assumption is not measured: that memory gets faster in proportion
to the number of cores.
"""

import dataclasses

from allcores.study import registry, schema
from allcores.study.run import Choice

# The latency of a message, as the bytes sent in that time: 0.1 ms on loopback at 2 to 3 GB/s.
MESSAGE_BYTES = 1 << 18
# The share of a step that more threads do not shorten, if there is one core only to measure on.
NOT_PARALLEL = 0.5


def extrapolate(run, available, measurement_of):
    """The Measurement of a run that takes more cores than there are.

    Args:
        run: a Run whose recipe is filled in.
        available: number of cores of this machine.
        measurement_of: function from a Run to the Measurement of its workload.
    """
    single_worker = _lone(run, run.threads_per_worker, available, measurement_of)
    if run.workers == 1:
        return dataclasses.replace(single_worker, extrapolated=True)
    few_workers = max(2, min(run.workers, available - run.servers))
    batch_of_worker = -(-run.batch_size // run.workers)
    servers = min(run.servers, 1)
    options = {"servers": servers} if "servers" in run.strategy.options else {}
    small_run = dataclasses.replace(
        run,
        strategy=dataclasses.replace(run.strategy, options=run.strategy.options | options),
        workers=few_workers,
        servers=servers,
        threads_per_worker=1,
        batch_size=few_workers * batch_of_worker,
        nodes=1,
    )
    small_measurement = measurement_of(small_run)
    single_thread = _lone(run, 1, available, measurement_of)
    # With fewer cores than processes, these take turns.
    turns = max(1.0, small_run.processes / available)
    exchange = max(0.0, small_measurement.step_seconds / turns - single_thread.step_seconds)
    grown = exchange * _growth(run, small_run, small_measurement.weights_bytes)
    memory_of_others = small_measurement.memory_bytes - single_thread.memory_bytes
    memory_of_worker = max(0, memory_of_others) // (small_run.processes - 1)
    return dataclasses.replace(
        small_measurement,
        step_seconds=single_worker.step_seconds * single_thread.slower + grown,
        slower=1.0,  # all other cores are busy with its own workers
        memory_bytes=single_thread.memory_bytes + memory_of_worker * (run.processes - 1),
        extrapolated=True,
    )


def _growth(run, small_run, weights):
    """How many times as long a run's exchange takes as that of a run with fewer workers."""
    exchange = registry.strategies()[run.strategy.name].load().exchange
    messages, vectors = (
        of_run / of_small
        for of_run, of_small in zip(
            exchange(run.workers, run.servers),
            exchange(small_run.workers, small_run.servers),
            strict=True,
        )
    )
    share = MESSAGE_BYTES / (MESSAGE_BYTES + weights)
    return share * messages + (1 - share) * vectors


def _lone(run, threads, available, measurement_of):
    """The Measurement of one worker with its part of the batch, on so many threads."""
    reference = schema.defaults("studies")["strategies"][0]
    single = dataclasses.replace(
        run,
        strategy=Choice(reference, reference, {}),
        workers=1,
        servers=0,
        nodes=1,
        threads_per_worker=1,
        batch_size=-(-run.batch_size // run.workers),
    )
    measurement = measurement_of(single)
    if threads == 1:
        return measurement
    fewer = min(threads, available)
    serial = NOT_PARALLEL
    if fewer > 1:
        on_threads = measurement_of(dataclasses.replace(single, threads_per_worker=fewer))
        speedup = measurement.step_seconds / on_threads.step_seconds
        serial = min(1.0, max(0.0, (fewer / speedup - 1) / (fewer - 1)))
    factor = serial + (1 - serial) / threads
    return dataclasses.replace(measurement, step_seconds=measurement.step_seconds * factor)
