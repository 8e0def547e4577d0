"""The training loop: the same for every model, strategy and number of workers."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from allcores.loop.sharding import count_batches, shards, shuffled
from allcores_study.config import registry
from allcores_study.data import augmentation
from allcores_study.data import targets as targets_of
from allcores_study.data.batches import Batches, loaded, seed_all, seed_dropout
from allcores_study.training import losses, models
from allcores_study.training.evaluation import DivergedError, evaluate, is_over
from allcores_study.training.optimizers import WeightAverage, make_chosen
from allcores_study.training.progress import Progress
from allcores_study.training.resuming import Saver
from allcores_study.training.schedules import Schedule

if TYPE_CHECKING:
    import numpy as np

    from allcores.loop.worker import Worker
    from allcores_study.config.run import Run
    from allcores_study.data.scaling import Scaling
    from allcores_study.data.storage import Dataset
    from allcores_study.training.checkpoints import Checkpoints


def train(
    run: Run,
    dataset: Dataset,
    scaling: Scaling,
    samples: np.ndarray,
    validation: np.ndarray,
    checkpoints: Checkpoints,
    worker: Worker,
) -> None:
    """Train as one worker of a run; its weights and what is known of its epochs go to checkpoints.

    Args:
        scaling: that of the training samples.
        samples, validation: positions in the dataset of the samples to train on, and of those to
            validate each epoch on, if any; (n,) int64 each.
        checkpoints: to resume from and save to; on other nodes only to resume from.
        worker: this process, the others and how to reach them.

    Raises:
        DivergedError: the loss is no longer finite.
    """
    assert run.optimizer and run.batch_size, "a network has both"
    seed_all(run.seed)
    model = models.build(run, dataset.shape, dataset.task.outputs, dataset.vocabulary_size)
    checkpoint = checkpoints.latest()
    shared = worker.share(  # a server serves here, until the workers have ended
        model,
        partial(make_chosen, run.optimizer),
        registry.strategies()[run.strategy.name].load(),
        clip_norm=run.clip_norm,
        resume=checkpoint and checkpoint["shared"],
        **run.strategy.options,
    )
    strategy, world = shared.strategy, worker.world

    criterion = losses.of_run(run, dataset, samples)
    augment = augmentation.of_run(run)
    source = Batches(dataset.inputs, scaling.mean, scaling.std, run.crop, run.flip, augment)
    targets = targets_of.of(dataset, scaling, source)
    batches = count_batches(len(samples), run.batch_size)
    schedule = Schedule(run.schedule, run.optimizer.options["lr"], run.epochs * batches)
    progress, clock = Progress(run, len(samples), batches, world), world.clock
    average = WeightAverage(run, strategy.trained, world.rank)
    validate = partial(evaluate, run, dataset, scaling, samples, validation)
    saver = Saver(checkpoints, shared, schedule, average, progress, batches, world)
    epochs = saver.resume(checkpoint)

    while not is_over(run, epochs):
        epoch = len(epochs)
        seed_dropout(run.seed, epoch, world.rank)
        source.start_epoch(run.seed, epoch)
        model.train()
        done, lr, total_loss = saver.begin_epoch()
        clock.enter("data")
        order = shuffled(samples, run.seed, epoch)
        my_shards = shards(order, run.batch_size, world.rank, world.workers, done)
        batches_of_epoch = loaded(my_shards, source, targets)
        for step, (shard, inputs, target) in enumerate(batches_of_epoch, start=done + 1):
            clock.enter("compute")
            with models.precision(run):
                scores = strategy.model(inputs)
            loss = criterion(scores.float(), target)
            if shard.weight != 1:
                loss = loss * shard.weight
            loss_value = loss.item()
            if not math.isfinite(loss_value):
                raise DivergedError(epoch + 1, step, schedule.lr)
            loss.backward()
            lr = schedule.lr
            strategy.step(lr)
            average.take()
            clock.enter("data")
            schedule.end_batch()
            total_loss += loss_value * shard.batch
            progress.batch()
            if saver.after_step(epochs, step, lr, total_loss):
                progress.close()
                return
        clock.enter("wait")
        mean_loss = world.sum(total_loss) / world.workers / len(samples)
        strategy.synchronize()
        clock.stop()
        if not math.isfinite(mean_loss):  # although the loss of each batch was
            raise DivergedError(epoch + 1, None, lr)

        schedule.end_epoch(mean_loss)
        epochs.append({"loss": mean_loss, "lr": lr, "phases": clock.take()})
        if saver.after_epoch(epochs, model, validate if len(validation) else None):
            break
    progress.close()
