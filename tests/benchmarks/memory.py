"""Memory of a whole run of VGG-19 by strategy and number of workers.

The largest sum of the processes' proportional set sizes: pages that several share count once.
"""

import sys
import tempfile

from measure import in_a_process, report, sized

from allcores.machine import cores

cores.set_thread_variables(1)

from train_once import images, run_of, train_once  # noqa: E402

MODEL, SIZE = sized(("vgg19", 32), ("lenet", 16))
WORKERS = sized(sorted({1, 2, 4, 8, cores.allowed()}), [2])
BATCH = max(16, *WORKERS)
STRATEGIES = ("shared_memory", "ddp", "ring")


def megabytes(strategy, workers):
    run = run_of(
        MODEL,
        images(2 * BATCH, SIZE),
        *[f"--strategy={strategy}", f"--workers={workers}", "--epochs=3"],
        batch_size=BATCH,
    )
    with tempfile.TemporaryDirectory() as folder:
        return train_once(run, folder)["peak_memory_bytes"] / 1e6


def compare():
    rows = []
    for workers in WORKERS:
        peaks = {strategy: in_a_process(__file__, strategy, workers) for strategy in STRATEGIES}
        for strategy, value in peaks.items():
            rows.append((f"VGG-19, {strategy}, {workers} workers", "MB", [value]))
        share = peaks["shared_memory"] / peaks["ddp"]
        rows.append(("  shared_memory / ddp", "x", [share]))
    report("memory", rows)


if __name__ == "__main__":
    if sys.argv[1:]:
        print(megabytes(*sys.argv[1:]))
    else:
        compare()
