"""From what was measured of a cell to what a run of it will take. No torch."""

import dataclasses
import math
import statistics
from dataclasses import dataclass

# Of each process of a run in megabytes, where they are forked from one that has imported torch.
FORKED_MB = 80
# What is claimed of what was measured: a run may take a little more than the one before.
MORE = 1.25


def claimed(memory, processes, process_mb=FORKED_MB):
    """The bytes that a run claims, by which it is packed.

    Args:
        memory: bytes that one like it has taken.
        processes: how many it has, beside the one that starts them.
        process_mb: that each of them takes at least.
    """
    return max(process_mb * 1e6 * (1 + processes), MORE * memory)


@dataclass(frozen=True)
class Sample:
    """What a second of training has shown of a cell.

    Attributes:
        step_seconds: of a step of a whole batch, with no other runs at work.
        slower: by how much it is slower with its copies at work on all other cores, from 1.
        warm_up_seconds: by which the first epoch is longer.
        fixed_seconds: of a run, before and after training and scoring.
        epoch_seconds: of an epoch beside its steps: a checkpoint.
        evaluation_seconds, image_seconds: of a scoring, and of each image scored.
        memory_bytes: of all its processes together, at most.
        phases: phase -> its share of a step.
        weights_bytes: of the model.
        end_seconds: from the end of its record until its memory and checkpoints are gone.
        extrapolated: whether it was not measured, but follows from what was.
    """

    step_seconds: float
    slower: float
    warm_up_seconds: float
    fixed_seconds: float
    epoch_seconds: float
    evaluation_seconds: float
    image_seconds: float
    memory_bytes: int
    phases: dict
    weights_bytes: int
    end_seconds: float
    extrapolated: bool = False

    def prediction(self, run, sizes, curves=False):
        """The Prediction for a Run of this cell, if it trains all its epochs.

        Args:
            sizes: its cells.Sizes.
            curves: whether it is scored after every epoch.
        """
        training = run.trained_epochs * sizes.train / run.batch_size * self.step_seconds
        training += self.warm_up_seconds
        scorings = run.trained_epochs if curves else 1
        scoring = self.evaluation_seconds + sizes.held_out * self.image_seconds
        other = self.fixed_seconds + run.trained_epochs * self.epoch_seconds + scorings * scoring
        if run.validation:
            judged = sizes.train * run.validation / (1 - run.validation)
            judging = self.evaluation_seconds + judged * self.image_seconds
            other += run.trained_epochs * judging
        data = (sizes.train + sizes.held_out) * math.prod(sizes.shape)  # bytes of images
        memory = self.memory_bytes + (data if len(sizes.shape) == 3 else 4 * data)
        told = training, other, self.end_seconds, self.slower, memory
        return Prediction(*told, self.extrapolated)


@dataclass(frozen=True)
class Prediction:
    """What a run will take.

    Attributes:
        training: seconds of its epochs, with no other runs at work.
        other: seconds of all else, from its start to its end.
        end: seconds after that until its cores are free.
        slower: by how much training is slower with runs at work on all other cores, from 1.
        memory: bytes.
        extrapolated: whether this kind of run was not measured here.
    """

    training: float
    other: float
    end: float
    slower: float
    memory: int
    extrapolated: bool

    def training_among(self, share):
        """Seconds of training with runs at work on that share of the other cores."""
        return self.training * (1 + (self.slower - 1) * share)

    def seconds_among(self, share):
        """Seconds from its start to its end, likewise."""
        return self.training_among(share) + self.other


def average(samples):
    """The Sample that several of a cell, taken at different times, make together."""
    means = {
        field.name: statistics.mean(getattr(sample, field.name) for sample in samples)
        for field in dataclasses.fields(Sample)
        if field.type is float
    }
    most = max(sample.memory_bytes for sample in samples)
    return dataclasses.replace(samples[0], **means, memory_bytes=most)


def duration(seconds):
    """In words: "4.8 s", "48 s", "3 min 20 s", "2 h 05 min"."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02d} min"
