"""A nested cross-validation of small networks, from the call to the end: ours, and scikit-learn's.

breast_cancer, 5 folds, 3 inner folds, 4 shapes of MLP x learning rates, 20 epochs in batches of 32:
305 networks, then 1,505. Ours ends with tables, figures and a report; cross_val_score of a
GridSearchCV of MLPClassifier with the scores. And the files that ours leaves.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import PYTHON, ROOT, SNAKEMAKE, in_turn, ratios, report, sized

from allcores.machine import cores

REPEATS = {5: sized(3, 1), 25: 1}
SHAPES = sized([[16], [32], [64], [32, 32]], [[16]])
CONFIG = """
models:
  mlp:
    hidden: {shapes}
    batch_size: 32
    epochs: {epochs}
    optimizer: {{name: adam, lr: {rates}}}
studies:
  nested: {{datasets: [breast_cancer], folds: {folds}, models: [mlp], select: 3}}
"""
EPOCHS, FOLDS = sized(20, 1), sized(5, 2)
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def learning_rates(count):
    """From 0.0001 to 0.01, with equal ratios."""
    return [round(0.0001 * 100 ** (place / (count - 1)), 6) for place in range(count)]


def ours(count):
    """Seconds of a call of snakemake, and how many files it leaves."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "nested.yaml"
        rates = learning_rates(count)
        config.write_text(CONFIG.format(shapes=SHAPES, epochs=EPOCHS, rates=rates, folds=FOLDS))
        command = [*SNAKEMAKE, "-s", ROOT / "workflow" / "Snakefile", "--cores", "all"]
        began = time.perf_counter()
        subprocess.run([*command, "--configfile", config], cwd=folder, check=True, **QUIET)
        seconds = time.perf_counter() - began
        files = [*Path(folder).rglob("results/**/*"), *Path(folder).rglob(".snakemake/**/*")]
        FILES.setdefault(count, []).append(sum(file.is_file() for file in files))
    return seconds


def of_scikit_learn(count):
    began = time.perf_counter()
    subprocess.run([*PYTHON, __file__, str(count)], check=True, **QUIET)
    return time.perf_counter() - began


def search(count):
    """What scikit-learn's users write."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPClassifier(batch_size=32, max_iter=EPOCHS, n_iter_no_change=EPOCHS, alpha=0.0)
    parameters = {
        "mlpclassifier__hidden_layer_sizes": SHAPES,
        "mlpclassifier__learning_rate_init": learning_rates(count),
    }
    inner = StratifiedKFold(3, shuffle=True, random_state=0)
    outer = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    pipeline = make_pipeline(StandardScaler(), network)
    grid = GridSearchCV(pipeline, parameters, cv=inner, n_jobs=sized(cores.allowed(), 1))
    print(cross_val_score(grid, *load_breast_cancer(return_X_y=True), cv=outer))


FILES = {}

if __name__ == "__main__":
    if sys.argv[1:]:
        search(int(sys.argv[1]))
        sys.exit()
    rows = []
    for count in sized((5, 25), (2,)):
        networks = FOLDS * (3 * len(SHAPES) * count + 1)
        ways = {"ours": lambda n=count: ours(n), "theirs": lambda n=count: of_scikit_learn(n)}
        timings = in_turn(ways, REPEATS.get(count, 1))
        rows += [
            (f"{networks:,} networks: ours, with tables and report", "s", timings["ours"]),
            (f"{networks:,} networks: scikit-learn's GridSearchCV", "s", timings["theirs"]),
            ("  ours / scikit-learn", "x", ratios(timings["ours"], timings["theirs"])),
            ("  files that ours leaves", "files", FILES[count]),
        ]
    report("nested", rows)
