"""A search over ranges inside each of two folds: drawn, suggested by TPE, and by Optuna alone.

breast_cancer, an MLP with one hidden layer; its width, batch size, learning rate and weight decay
are searched: 50 candidates in each fold, judged by the mean accuracy on three inner folds; the best
is trained again and scored once. Ours draws them by a Sobol sequence, or has `search: tpe` suggest
them, and ends with tables, figures and a report. Optuna alone suggests as many by the scores so
far, `n_jobs` of them at once, and trains them in a plain loop of torch.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
from measure import PYTHON, ROOT, SNAKEMAKE, in_turn, ratios, report, sized

from allcores.machine import cores

COUNT, EPOCHS, INNER, FOLDS = sized(50, 11), sized(20, 1), 3, 2
CONFIG = f"""
models:
  mlp:
    hidden: [128]
    width: {{range: [0.1, 1.0]}}
    batch_size: [16, 32, 64]
    epochs: {EPOCHS}
    optimizer: {{name: adam, lr: {{log: [0.0001, 0.1]}}, weight_decay: {{log: [0.00001, 0.1]}}}}
    HOW
precision: fp32
memory_format: contiguous
studies:
  search: {{datasets: [breast_cancer], folds: {FOLDS}, models: [mlp], select: {INNER}}}
"""
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
HOW = {
    "drawn": f"sample: {{count: {COUNT}, seed: SEED}}",
    "suggested": f"search: {{sampler: tpe, trials: {COUNT}, seed: SEED}}",
}
SCORES = {"drawn": [], "suggested": [], "alone": []}  # of the chosen ones: inner and held-out means


def ours(how):
    """Seconds of a call of snakemake."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "search.yaml"
        config.write_text(CONFIG.replace("HOW", HOW[how]).replace("SEED", str(len(SCORES[how]))))
        command = [*SNAKEMAKE, "-s", ROOT / "workflow" / "Snakefile", "--cores", "all"]
        began = time.perf_counter()
        subprocess.run([*command, "--configfile", config], cwd=folder, check=True, **QUIET)
        seconds = time.perf_counter() - began
        results = Path(folder, "results/search/studies/search")
        candidates = pd.read_csv(results / "candidates.csv").query("chosen")
        held_out = pd.read_csv(results / "runs.csv")["accuracy"]
        SCORES[how].append((candidates["score"].mean(), held_out.mean()))
    return seconds


def theirs():
    """Seconds of a program as Optuna's users write it."""
    began = time.perf_counter()
    command = [*PYTHON, __file__, str(len(SCORES["alone"]))]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds = time.perf_counter() - began
    SCORES["alone"].append(tuple(map(float, said.split()[-2:])))
    return seconds


def optimize(seed):
    """Print the mean accuracy of the chosen ones on the inner folds and the test folds."""
    import numpy as np
    import optuna
    import torch
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import StratifiedKFold
    from sklearn.preprocessing import StandardScaler

    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    inputs, targets = load_breast_cancer(return_X_y=True)

    def accuracy(mine, held_out, width, batch_size, lr, weight_decay):
        scaled = StandardScaler().fit(inputs[mine]).transform(inputs).astype(np.float32)
        scaled, classes = torch.from_numpy(scaled), torch.from_numpy(targets)
        layers = torch.nn.Linear(30, width), torch.nn.ReLU(), torch.nn.Linear(width, 2)
        model = torch.nn.Sequential(*layers)
        optimizer = torch.optim.Adam(model.parameters(), lr, weight_decay=weight_decay)
        for _ in range(EPOCHS):
            for part in torch.from_numpy(mine)[torch.randperm(len(mine))].split(batch_size):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(scaled[part]), classes[part]).backward()
                optimizer.step()
        with torch.inference_mode():
            told = model(scaled[held_out]).argmax(dim=1)
        return float((told == classes[held_out]).float().mean())

    def objective(trial):
        settings = {
            "width": trial.suggest_int("width", 13, 128),
            "batch_size": trial.suggest_categorical("batch_size", [16, 32, 64]),
            "lr": trial.suggest_float("lr", 1e-4, 1e-1, log=True),
            "weight_decay": trial.suggest_float("weight_decay", 1e-5, 1e-1, log=True),
        }
        return sum(accuracy(*split, **settings) for split in inner) / len(inner)

    def folds(count, samples):
        split = StratifiedKFold(count, shuffle=True, random_state=seed).split
        return [[samples[part] for part in parts] for parts in split(samples, targets[samples])]

    best, scores = [], []
    for mine, held_out in folds(FOLDS, np.arange(len(inputs))):
        inner = folds(INNER, mine)
        sampler = optuna.samplers.TPESampler(seed=seed)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(objective, n_trials=COUNT, n_jobs=sized(cores.allowed(), 1))
        best.append(study.best_value)
        scores.append(accuracy(mine, held_out, **study.best_params))
    print(sum(best) / len(best), sum(scores) / len(scores))


if __name__ == "__main__":
    if sys.argv[1:]:
        optimize(int(sys.argv[1]))
        sys.exit()
    ways = {"drawn": lambda: ours("drawn"), "suggested": lambda: ours("suggested"), "alone": theirs}
    timings = in_turn(ways, 1)
    titles = {
        "drawn": "drawn, with report",
        "suggested": "TPE, with report",
        "alone": "Optuna alone",
    }
    rows = [
        (f"{COUNT} candidates in each of {FOLDS} folds: {titles[way]}", "s", timings[way])
        for way in ways
    ]
    rows += [
        (f"  {titles[way]} / Optuna alone", "x", ratios(timings[way], timings["alone"]))
        for way in HOW
    ]
    for place, where in enumerate(("inner folds", "test folds")):
        for way in ways:
            means = [100 * scores[place] for scores in SCORES[way]]
            rows.append((f"  mean accuracy on the {where}, {titles[way]}", "%", means))
    report("search", rows)
