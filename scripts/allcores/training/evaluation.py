"""Score saved weights on the held-out samples: exact, no padding, no augmentation."""

import math

import numpy as np
import torch

from allcores.data.batches import Batches
from allcores.training import losses, models

BATCH_SIZE = 256
# The measures of classes, and of numbers.
OF_CLASSES = ("accuracy", "confusion")
OF_NUMBERS = ("r2", "rmse", "mae")


@torch.inference_mode()
def evaluate(run, dataset, scaling, samples, held_out, weights):
    """Score weights on the held-out samples.

    Args:
        run: the Run, without `auto`.
        dataset: the opened storage.Dataset.
        scaling: Scaling, of its training samples.
        samples, held_out: positions of the training samples and the held-out ones, (n,) int64 each.
        weights: a state_dict of the run's model.

    Returns:
        ({"loss": mean over the samples, and what of_classes() or of_numbers() returns},
        the model's scores of the samples, (n, outputs) float32)
    """
    model = models.build(run, dataset.shape, dataset.outputs)
    model.load_state_dict(weights)
    model.eval()
    criterion = losses.of_run(run, dataset, samples)
    source = Batches(dataset.inputs, scaling.mean, scaling.std)
    targets = torch.from_numpy(scaling.scaled(dataset.targets))
    loss, batches = 0.0, []
    for part, scores in scores_of(model, source, held_out):
        loss += float(criterion(scores, targets[part])) * len(part)
        batches.append(scores.numpy())
    scores, true = np.concatenate(batches), dataset.targets[held_out]
    if dataset.classes is None:
        measures = of_numbers(true, scaling.original(scores[:, 0]))
    else:
        measures = of_classes(true, scores.argmax(axis=1), dataset.outputs)
    return measures | {"loss": loss / len(held_out)}, scores


def shipped(epochs):
    """The epoch, counted from 0, whose weights a run ships: the best on its validation part, or the
    last if it has none. A loss that is NaN is worse than any number.

    Args:
        epochs: one record per epoch.
    """
    if "validation_loss" not in epochs[-1]:
        return len(epochs) - 1
    values = [epoch["validation_loss"] for epoch in epochs]
    return min(range(len(epochs)), key=lambda i: (math.isnan(values[i]), values[i]))


def is_over(run, epochs):
    """Whether a Run needs no further epoch."""
    if not epochs:
        return False
    waited = len(epochs) - 1 - shipped(epochs)
    return len(epochs) == run.trained_epochs or waited >= (run.patience or math.inf)


def scores_of(model, source, samples):
    """Yield (samples, the model's scores of them, (n, outputs) float32), batch by batch.

    Args:
        model: in evaluation mode.
        source: Batches.
        samples: positions in it, (n,) int64.
    """
    for start in range(0, len(samples), BATCH_SIZE):
        part = samples[start : start + BATCH_SIZE]
        yield part, model(source.plain(part))


def of_classes(true, predicted, classes):
    """{"accuracy": share in 0..1, "confusion": (classes, classes) nested lists of counts, true
    class by predicted class}

    Args:
        true, predicted: (n,) int64, in 0 .. classes - 1.
    """
    pairs = np.bincount(true * classes + predicted, minlength=classes**2)
    return {
        "accuracy": float(np.mean(true == predicted)),
        "confusion": pairs.reshape(classes, classes).tolist(),
    }


def of_numbers(true, predicted):
    """{"r2": coefficient of determination, 1 at best; None if the true values are all equal,
    "rmse": root of the mean squared error, "mae": mean absolute error}

    Args:
        true, predicted: (n,) float64.
    """
    error, spread = true - predicted, np.sum((true - true.mean()) ** 2)
    return {
        # Rounding alone could leave a spread of equal numbers.
        "r2": float(1 - np.sum(error**2) / spread) if np.ptp(true) and spread else None,
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.mean(np.abs(error))),
    }


def in_words(measures):
    """The main measure as text: "accuracy 96.33%" or "R2 0.4821"."""
    if "accuracy" in measures:
        return f"accuracy {measures['accuracy']:.2%}"
    return "R2 undefined" if measures["r2"] is None else f"R2 {measures['r2']:.4f}"
