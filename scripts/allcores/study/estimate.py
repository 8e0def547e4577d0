"""How long and how large a run will be, roughly: enough to start the longest first."""

from allcores.study import registry

START_UP = 3.0  # seconds
RATE = 8e9  # multiply-adds per second and core
PASSES = 3  # forward, and two for backward
SCALING = 0.7  # n cores are worth n ** SCALING
UNKNOWN_COST = 100  # million multiply-adds per 32 x 32 image, for a model of which nothing is said
UNKNOWN_IMAGES, UNKNOWN_SIZE = 10_000, 32

PROCESS_MB = 400  # torch, a small model, buffers
ACTIVATION_MB = 2e-3  # per pixel of a batch: ResNet-50's, more than most models need


def seconds(run):
    """Expected duration of a Run in seconds."""
    images, size = _images(run)
    width = run.model.options.get("width", 1.0)
    constants = registry.model(run.model.name).constants
    cost = constants.get("COST", {}).get(run.model.name, UNKNOWN_COST) * width**2
    work = PASSES * images * run.epochs * cost * 1e6 * (size / 32) ** 2
    return START_UP + work / RATE / run.cores**SCALING


def minutes(run):
    """A time limit for a Run: ten times what is expected, half an hour at least."""
    return max(30, round(10 * seconds(run) / 60))


def memory_mb(run):
    """Expected peak memory of a Run in megabytes; generous: a cluster kills what exceeds it."""
    _, size = _images(run)
    return round(PROCESS_MB * (1 + run.processes) + ACTIVATION_MB * run.batch_size * size**2)


def _images(run):
    """(training images, pixels a side)."""
    metadata = registry.metadata(run.dataset)
    images, size = (metadata.train, metadata.size) if metadata else (UNKNOWN_IMAGES, UNKNOWN_SIZE)
    if run.folds is not None:
        images = images * (run.folds - 1) / run.folds
    return min(images, run.train_size or images), size
