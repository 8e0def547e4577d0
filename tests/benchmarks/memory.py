"""Memory of a whole run of VGG-19 by strategy and number of workers.

The largest sum of the processes' proportional set sizes: pages that several share count once.
"""

import tempfile

from measure import report

from allcores import cores, lean_torch

cores.set_thread_variables(1)
lean_torch.import_torch()

from conduct import conduct, images, run_of  # noqa: E402

WORKERS = sorted({1, 2, 4, 8, cores.allowed()})
STRATEGIES = ("shared_memory", "ddp", "ring")


def megabytes(strategy, workers, folder):
    run = run_of(
        "vgg19",
        images(32, 32),
        *[f"--strategy={strategy}", f"--workers={workers}", "--batch-size=16", "--epochs=3"],
    )
    return conduct(run, folder)["peak_memory_bytes"] / 1e6


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = {
            (workers, strategy): megabytes(strategy, workers, folder)
            for workers in WORKERS
            for strategy in STRATEGIES
        }
    rows = [
        (f"VGG-19, {strategy}, {workers} workers", "MB", [value])
        for (workers, strategy), value in found.items()
    ]
    rows += [
        (
            f"{workers} workers: shared_memory / ddp",
            "x",
            [found[workers, "shared_memory"] / found[workers, "ddp"]],
        )
        for workers in WORKERS
    ]
    report("memory", rows)
