"""Predict what a run will take from the Measurement of its workload. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allcores_study.config.run import Run
    from allcores_study.planning.workload import Sizes

# Megabytes per process of a run, where processes are forked from one that has imported torch.
FORKED_MB = 80
# Claimed over measured memory: a run may take a little more than the one that was measured.
MEMORY_MARGIN = 1.25


def claimed(memory: float, processes: int, process_mb: float = FORKED_MB) -> float:
    """Return the bytes that a run claims when runs are packed.

    Args:
        memory: bytes that a run of this kind has taken.
        processes: how many it has, without the one that starts them.
        process_mb: least megabytes per process.
    """
    return max(process_mb * 1e6 * (1 + processes), MEMORY_MARGIN * memory)


@dataclass(frozen=True)
class Measurement:
    """What a second of training has shown about a workload.

    Attributes:
        step_seconds: of a step of a whole batch, with no other runs at work.
        slower: factor, from 1, by which copies at work on all other cores slow it down.
        warm_up_seconds: by which the first epoch is longer.
        fixed_seconds: of a run, before and after training and scoring.
        epoch_seconds: of an epoch in addition to its steps: a checkpoint.
        evaluation_seconds, image_seconds: of a scoring, and in addition of each image in it.
        memory_bytes: peak memory of all its processes together.
        weights_bytes: of the model.
        end_seconds: from the end of its record until its memory and checkpoints are gone.
        contended: whether other processes used the cores meanwhile, as for a run.
    """

    step_seconds: float
    slower: float
    warm_up_seconds: float
    fixed_seconds: float
    epoch_seconds: float
    evaluation_seconds: float
    image_seconds: float
    memory_bytes: int
    weights_bytes: int
    end_seconds: float
    contended: bool = False

    def prediction(self, run: Run, sizes: Sizes, curves: bool = False) -> Prediction:
        """Return the Prediction for a Run of this workload, if it trains all its epochs.

        Args:
            curves: whether it is scored after every epoch.
        """
        batch = run.batch_size or sizes.train  # an estimator is fitted in a single step
        training = run.trained_epochs * sizes.train / batch * self.step_seconds
        training += self.warm_up_seconds
        scorings = run.trained_epochs if curves else 1
        scoring = self.evaluation_seconds + sizes.held_out * self.image_seconds
        other = self.fixed_seconds + run.trained_epochs * self.epoch_seconds + scorings * scoring
        if run.validation:
            validation_size = sizes.train * run.validation / (1 - run.validation)
            validation_scoring = self.evaluation_seconds + validation_size * self.image_seconds
            other += run.trained_epochs * validation_scoring
        data = (sizes.train + sizes.held_out) * math.prod(sizes.shape)  # bytes of images
        memory = self.memory_bytes + (data if len(sizes.shape) == 3 else 4 * data)
        return Prediction(training, other, self.end_seconds, self.slower, memory, self.contended)


@dataclass(frozen=True)
class Prediction:
    """What a run will take.

    Attributes:
        training: seconds of its epochs, with no other runs at work.
        other: seconds of everything else, from its start to its end.
        end: seconds after that until its cores are free.
        slower: factor, from 1, by which runs at work on all other cores slow down training.
        memory: bytes.
        contended: see Measurement.
    """

    training: float
    other: float
    end: float
    slower: float
    memory: int
    contended: bool = False

    def training_among(self, share: float) -> float:
        """Return the seconds of training with runs on that share of the other cores, 0..1."""
        return self.training * (1 + (self.slower - 1) * share)

    def seconds_among(self, share: float) -> float:
        """Return the seconds from start to end, with runs on that share of the other cores."""
        return self.training_among(share) + self.other
