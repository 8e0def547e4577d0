"""A step of a small network: what our loop adds to a bare loop of torch's, and scikit-learn's step.

An MLP of 30-64-2, Adam, batches of 32, on one core. Ours is what twice as many epochs take longer,
with shuffling, checks, records and checkpoints; of a stack the step of all, by their number.
"""

import sys
import tempfile
import time

from measure import in_a_process, in_turn, report, sized

from allcores.machine import cores

cores.set_thread_variables(1)

import dataclasses  # noqa: E402

import torch  # noqa: E402
from train_once import run_of, train_once  # noqa: E402

from allcores_study.config.run import Entry  # noqa: E402
from allcores_study.data import preparation  # noqa: E402
from allcores_study.stacking import loop  # noqa: E402
from allcores_study.training import models  # noqa: E402
from allcores_study.training.prepared import PreparedRun  # noqa: E402

REPEATS = 5
EPOCHS, BATCH = sized(300, 2), 32
STACKED, EPOCHS_OF_STACK = 50, sized(50, 1)
ADAM = {"lr": 0.003}
TABLE = Entry("breast_cancer", "breast_cancer", {})


def ours():
    _, short, long = map(seconds_of_a_run, (2, EPOCHS, 2 * EPOCHS))  # the first one imports
    return (long - short) / (EPOCHS * batches(len(samples()[0])))


def in_a_stack():
    """Of each of the networks that are trained at once."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        preparation.prepare(TABLE, folder, f"{folder}/data")
        run, data = of_epochs(EPOCHS_OF_STACK), f"{folder}/data"
        runs = [dataclasses.replace(run, seed=seed) for seed in range(STACKED)]
        prepared_runs = [PreparedRun.of(one, data, None) for one in runs]
        networks = [
            models.build(prepared.run, prepared.dataset.shape, 2) for prepared in prepared_runs
        ]
        began = time.perf_counter()
        loop.train(prepared_runs, networks, lambda *_: None)
        seconds = time.perf_counter() - began
    return seconds / (STACKED * EPOCHS_OF_STACK * batches(len(prepared_runs[0].samples)))


def of_epochs(epochs):
    """The Run of so many epochs."""
    return run_of(
        "mlp",
        TABLE,
        f"--epochs={epochs}",
        batch_size=BATCH,
        precision="fp32",
        model=Entry("mlp", "mlp", {"hidden": [64]}),
        optimizer=Entry("Adam", "Adam", ADAM),
        memory_format="contiguous",
        crop=0,
        flip=False,
        folds=5,
        fold=0,
    )


def seconds_of_a_run(epochs):
    run = of_epochs(epochs)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        train_once(run, folder)
        return time.perf_counter() - began


def batches(samples):
    return -(-samples // BATCH)


def samples():
    """As many rows as a run of five folds trains on: (455, 30) float32, (455,) int64."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.preprocessing import scale

    inputs, targets = load_breast_cancer(return_X_y=True)
    return scale(inputs)[:455].astype("float32"), targets[:455]


def bare(fused):
    torch.set_num_threads(1)
    inputs, targets = map(torch.from_numpy, samples())
    model = torch.nn.Sequential(
        torch.nn.Linear(30, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2), torch.nn.Flatten()
    )
    optimizer = torch.optim.Adam(model.parameters(), **ADAM, fused=fused)
    began = time.perf_counter()
    for _ in range(EPOCHS):
        order = torch.randperm(len(inputs))
        for batch in order.split(BATCH):
            optimizer.zero_grad()
            scores = model(inputs[batch])
            torch.nn.functional.cross_entropy(scores, targets[batch]).backward()
            optimizer.step()
    return (time.perf_counter() - began) / (EPOCHS * batches(len(inputs)))


def with_scikit_learn():
    import warnings

    from sklearn.neural_network import MLPClassifier

    warnings.simplefilter("ignore")
    network = MLPClassifier(
        64, batch_size=BATCH, learning_rate_init=ADAM["lr"], max_iter=EPOCHS, n_iter_no_change=10**6
    )
    inputs, targets = samples()
    began = time.perf_counter()
    network.fit(inputs, targets)
    return (time.perf_counter() - began) / (EPOCHS * batches(len(inputs)))


LOOPS = {
    "ours": ours,
    "ours, of 50 in a stack": in_a_stack,
    "scikit-learn": with_scikit_learn,
    "torch, fused": lambda: bare(fused=True),
    "torch": lambda: bare(fused=False),
}

if __name__ == "__main__":
    if sys.argv[1:]:
        print(1e6 * LOOPS[sys.argv[1]]())
        sys.exit()
    steps = in_turn(
        {name: lambda name=name: in_a_process(__file__, name) for name in LOOPS}, REPEATS
    )
    over = [a - b for a, b in zip(steps["ours"], steps["torch, fused"], strict=True)]
    rows = [(f"a step of an MLP of 30-64-2: {name}", "us", steps[name]) for name in LOOPS]
    report("step_overhead", [*rows, ("  ours over the bare loop, fused", "us", over)])
