"""Score saved weights on the held-out samples: exact, no padding, no augmentation."""

import numpy as np
import torch

from allcores.data.batches import ImageBatches
from allcores.training import losses, metrics, models

BATCH_SIZE = 256


@torch.inference_mode()
def evaluate(run, dataset, mean, std, held_out, weights):
    """Accuracy, loss and confusion matrix of weights on the samples held_out.

    Args:
        run: the Run, without `auto`.
        dataset: the opened storage.Dataset.
        mean, std: of the training samples' pixels in 0..1, per channel, (C,) float64.
        held_out: positions in the dataset, (n,) int64.
        weights: a state_dict of the run's model.

    Returns:
        ({"accuracy": share in 0..1, "loss": mean over the samples, "confusion": (classes, classes)
        nested lists of counts, true class by predicted class}, the scores themselves, (n, classes)
        float32)
    """
    model = models.build(run, dataset)
    model.load_state_dict(weights)
    model.eval()
    criterion = losses.build(run.loss.name, run.loss.options)
    images = ImageBatches(dataset.images, mean, std)
    classes = len(dataset.info["classes"])
    confusion, loss, found = np.zeros((classes, classes), np.int64), 0.0, []
    for samples, scores in scores_of(model, images, held_out):
        labels = dataset.labels[samples]
        found.append(scores.numpy())
        loss += float(criterion(scores, torch.from_numpy(labels))) * len(samples)
        predicted = scores.argmax(dim=1).numpy()
        confusion += metrics.confusion_matrix(labels, predicted, classes)
    measures = {
        "accuracy": metrics.accuracy(confusion),
        "loss": loss / len(held_out),
        "confusion": confusion.tolist(),
    }
    return measures, np.concatenate(found)


def scores_of(model, images, samples):
    """Yield (samples, what the model says of each class, (n, classes) float32), part by part.

    Args:
        model: in evaluation mode.
        images: ImageBatches.
        samples: positions in these images, (n,) int64.
    """
    for start in range(0, len(samples), BATCH_SIZE):
        part = samples[start : start + BATCH_SIZE]
        yield part, model(images.plain(part))
