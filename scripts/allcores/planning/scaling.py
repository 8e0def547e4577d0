"""Predict runs that take more cores than this machine has, from those that it can measure.

A step of W workers is a step of a few workers with as many samples each, and a longer exchange: how
much longer is what the strategy says of itself (Strategy.exchange). Threads within a worker follow
Amdahl's law. What matters most, and is not measured: that memory is as much faster as there are
more cores.
"""

import dataclasses

from allcores.study import registry
from allcores.study.grid import STUDY_DEFAULTS
from allcores.study.run import Choice

# A message takes as long as sending so many bytes: on loopback 0.1 ms, at 2 to 3 GB a second.
MESSAGE_BYTES = 1 << 18
# The share of a step that more threads do not shorten, where one core is all there is to measure.
NOT_PARALLEL = 0.5


def extrapolate(run, available, sample_of):
    """The Sample of a run that takes more cores than there are.

    Args:
        run: a Run whose recipe is filled in.
        available: number of cores of this machine.
        sample_of: called with a Run, it returns the Sample of its cell.
    """
    alone = _lone(run, run.threads_per_worker, available, sample_of)
    if run.workers == 1:
        return dataclasses.replace(alone, extrapolated=True)
    few = max(2, min(run.workers, available - run.servers))
    each = -(-run.batch_size // run.workers)
    servers = min(run.servers, 1)
    own = {"servers": servers} if "servers" in run.strategy.options else {}
    some = dataclasses.replace(
        run,
        strategy=dataclasses.replace(run.strategy, options=run.strategy.options | own),
        workers=few,
        servers=servers,
        threads_per_worker=1,
        batch_size=few * each,
        nodes=1,
    )
    together = sample_of(some)
    alone_on_one = _lone(run, 1, available, sample_of)
    # On fewer cores than processes they take turns.
    turns = max(1.0, some.processes / available)
    exchange = max(0.0, together.step_seconds / turns - alone_on_one.step_seconds)
    grown = exchange * _growth(run, some, together.weights_bytes)
    of_worker = max(0, together.memory_bytes - alone_on_one.memory_bytes) // (some.processes - 1)
    return dataclasses.replace(
        together,
        step_seconds=alone.step_seconds * alone_on_one.slower + grown,
        slower=1.0,  # its own workers are the neighbours
        memory_bytes=alone_on_one.memory_bytes + of_worker * (run.processes - 1),
        extrapolated=True,
    )


def _growth(run, some, weights):
    """By how much longer a run's exchange takes than that of `some` of its workers."""
    exchange = registry.strategies()[run.strategy.name].load().exchange
    messages, vectors = (
        of_run / of_some
        for of_run, of_some in zip(
            exchange(run.workers, run.servers), exchange(some.workers, some.servers), strict=True
        )
    )
    share = MESSAGE_BYTES / (MESSAGE_BYTES + weights)
    return share * messages + (1 - share) * vectors


def _lone(run, threads, available, sample_of):
    """The Sample of one worker with its part of the batch, on so many threads."""
    reference = STUDY_DEFAULTS["strategies"][0]
    one = dataclasses.replace(
        run,
        strategy=Choice(reference, reference, {}),
        workers=1,
        servers=0,
        nodes=1,
        threads_per_worker=1,
        batch_size=-(-run.batch_size // run.workers),
    )
    sample = sample_of(one)
    if threads == 1:
        return sample
    most = min(threads, available)
    serial = NOT_PARALLEL
    if most > 1:
        faster = (
            sample.step_seconds
            / sample_of(dataclasses.replace(one, threads_per_worker=most)).step_seconds
        )
        serial = min(1.0, max(0.0, (most / faster - 1) / (most - 1)))
    factor = serial + (1 - serial) / threads
    return dataclasses.replace(sample, step_seconds=sample.step_seconds * factor)
