"""A search over ranges, 100 candidates on three folds: drawn by us, and suggested by Optuna's TPE.

breast_cancer, an MLP with one hidden layer; its width, batch size, learning rate and weight decay
are searched. Ours draws 100 candidates from ranges by a Sobol sequence, packs and stacks their
trainings, and ends with tables, figures and a report. Optuna alone suggests 100 trials by the
scores so far, `n_jobs` of them at once, and trains them in a plain loop of torch.
Both judge by the mean accuracy on three folds.
"""

import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
from measure import PYTHON, ROOT, SNAKEMAKE, in_turn, ratios, report, sized

from allcores.machine import cores

COUNT, EPOCHS, FOLDS = sized(100, 2), sized(20, 1), 3
CONFIG = f"""
models:
  mlp:
    hidden: [128]
    width: {{range: [0.1, 1.0]}}
    batch_size: [16, 32, 64]
    epochs: {EPOCHS}
    optimizer: {{name: adam, lr: {{log: [0.0001, 0.1]}}, weight_decay: {{log: [0.00001, 0.1]}}}}
    sample: {{count: {COUNT}, seed: SEED}}
recipe: fixed
studies:
  search: {{datasets: [breast_cancer], folds: {FOLDS}, models: [mlp]}}
"""
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
BEST = {"ours": [], "theirs": []}


def ours():
    """Seconds of a call of snakemake."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "search.yaml"
        config.write_text(CONFIG.replace("SEED", str(len(BEST["ours"]))))
        command = [*SNAKEMAKE, "-s", ROOT / "workflow" / "Snakefile", "--cores", "all"]
        began = time.perf_counter()
        subprocess.run([*command, "--configfile", config], cwd=folder, check=True, **QUIET)
        seconds = time.perf_counter() - began
        scores = pd.read_csv(Path(folder, "results/search/studies/search/sweep_table.csv"))["score"]
    BEST["ours"].append(100 * scores.max())
    return seconds


def theirs():
    """Seconds of a program as Optuna's users write it."""
    began = time.perf_counter()
    command = [*PYTHON, __file__, str(len(BEST["theirs"]))]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds = time.perf_counter() - began
    BEST["theirs"].append(100 * float(said.split()[-1]))
    return seconds


def optimize(seed):
    """Print the best mean accuracy that Optuna's TPE finds."""
    import numpy as np
    import optuna
    import torch
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import StratifiedKFold
    from sklearn.preprocessing import StandardScaler

    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    inputs, targets = load_breast_cancer(return_X_y=True)
    splits = list(StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(inputs, targets))
    targets = torch.from_numpy(targets)

    def objective(trial):
        width = trial.suggest_int("width", 13, 128)
        batch_size = trial.suggest_categorical("batch_size", [16, 32, 64])
        lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
        weight_decay = trial.suggest_float("weight_decay", 1e-5, 1e-1, log=True)
        scores = []
        for mine, held_out in splits:
            scaled = StandardScaler().fit(inputs[mine]).transform(inputs).astype(np.float32)
            scaled = torch.from_numpy(scaled)
            layers = torch.nn.Linear(30, width), torch.nn.ReLU(), torch.nn.Linear(width, 2)
            model = torch.nn.Sequential(*layers)
            optimizer = torch.optim.Adam(model.parameters(), lr, weight_decay=weight_decay)
            for _ in range(EPOCHS):
                for part in torch.from_numpy(mine)[torch.randperm(len(mine))].split(batch_size):
                    optimizer.zero_grad()
                    loss = torch.nn.functional.cross_entropy(model(scaled[part]), targets[part])
                    loss.backward()
                    optimizer.step()
            with torch.inference_mode():
                told = model(scaled[held_out]).argmax(dim=1)
            scores.append(float((told == targets[held_out]).float().mean()))
        return sum(scores) / len(scores)

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=COUNT, n_jobs=sized(cores.allowed(), 1))
    print(study.best_value)


if __name__ == "__main__":
    if sys.argv[1:]:
        optimize(int(sys.argv[1]))
        sys.exit()
    ways = {"ours": ours}
    if importlib.util.find_spec("optuna"):  # `make bench` installs it
        ways["theirs"] = theirs
    timings = in_turn(ways, 1)
    rows = [(f"{COUNT} candidates from ranges: ours, with tables and report", "s", timings["ours"])]
    if "theirs" in ways:
        rows += [
            (f"{COUNT} candidates: Optuna's TPE alone", "s", timings["theirs"]),
            ("  ours / Optuna", "x", ratios(timings["ours"], timings["theirs"])),
            ("  best mean accuracy, Optuna's TPE alone", "%", BEST["theirs"]),
        ]
    rows.append(("  best mean accuracy, ours", "%", BEST["ours"]))
    report("search", rows)
