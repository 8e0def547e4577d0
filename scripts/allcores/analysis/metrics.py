"""How good predictions are: scikit-learn's metrics, by name.

Each function takes what is true and what is predicted, (n,) arrays each, and the probability of
every class, (n, classes), or None where the targets are numbers.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from allcores.files import sha256
from allcores.study import fit

# Name of each metric -> how it is called; the order is that of a config's manual.
TITLES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "roc_auc": "ROC AUC",
    "log_loss": "log loss",
    "brier": "Brier score",
    "r2": "R²",
    "rmse": "RMSE",
    "mae": "MAE",
}
# Those of numbers; all others are of classes.
OF_NUMBERS = ("r2", "rmse", "mae")
# Those that are told in per cent.
PERCENT = ("accuracy", "balanced_accuracy", "macro_f1", "roc_auc")
# Those of which less is better.
LESS_IS_BETTER = ("log_loss", "brier", "rmse", "mae")
# What a study is about that does not say it: by whether its targets are numbers.
DEFAULTS = {False: ("accuracy",), True: OF_NUMBERS}


def accuracy(true, predicted, probabilities):
    return _sklearn().accuracy_score(true, predicted)


def balanced_accuracy(true, predicted, probabilities):
    return _sklearn().balanced_accuracy_score(true, predicted)


def macro_f1(true, predicted, probabilities):
    return _sklearn().f1_score(true, predicted, average="macro", zero_division=0.0)


def roc_auc(true, predicted, probabilities):
    """Of more than two classes: each against the rest, their mean."""
    labels = np.arange(probabilities.shape[1])
    if set(true) != set(labels):
        return math.nan
    if len(labels) == 2:
        return _sklearn().roc_auc_score(true, probabilities[:, 1])
    return _sklearn().roc_auc_score(true, probabilities, multi_class="ovr", labels=labels)


def log_loss(true, predicted, probabilities):
    return _sklearn().log_loss(true, probabilities, labels=np.arange(probabilities.shape[1]))


def brier(true, predicted, probabilities):
    """Mean squared distance from certainty, over all classes (Brier 1950): 0 to 2."""
    certain = np.eye(probabilities.shape[1])[true]
    return np.mean(np.sum((probabilities - certain) ** 2, axis=1))


def r2(true, predicted, probabilities):
    return _sklearn().r2_score(true, predicted) if np.ptp(true) else math.nan


def rmse(true, predicted, probabilities):
    return _sklearn().root_mean_squared_error(true, predicted)


def mae(true, predicted, probabilities):
    return _sklearn().mean_absolute_error(true, predicted)


MEASURES = {
    each.__name__: each
    for each in (accuracy, balanced_accuracy, macro_f1, roc_auc, log_loss, brier, r2, rmse, mae)
}


def _sklearn():
    from sklearn import metrics  # takes a second, which a report on accuracy spares

    return metrics


@dataclass(frozen=True)
class Metric:
    """One that a study is about.

    Attributes:
        name: a key of TITLES.
    """

    name: str

    def __str__(self):
        return TITLES[self.name]

    @property
    def scale(self):
        """By which values are multiplied to be told."""
        return 100.0 if self.name in PERCENT else 1.0

    @property
    def unit(self):
        return "%" if self.name in PERCENT else ""

    @property
    def sign(self):
        """1 where more is better, else -1."""
        return -1 if self.name in LESS_IS_BETTER else 1

    @property
    def axis(self):
        """The label of an axis."""
        return f"{self} (%)" if self.unit else str(self)

    def written(self, value, digits=2):
        """A value in words: "96.33%", "0.4821"."""
        return f"{value:.{digits}%}" if self.unit else f"{value:.4g}"

    def points(self, difference, digits=2):
        """A difference in words: "1.20 points", "0.012"."""
        return f"{100 * difference:.{digits}f} points" if self.unit else f"{difference:.3g}"

    def spread(self, width):
        """Half the width of an interval, in words: "1.2", "0.0123"."""
        return f"{100 * width:.1f}" if self.unit else f"{width:.3g}"

    def signed(self, difference):
        """A difference with its sign, in words: "+1.20", "-0.012"."""
        return f"{100 * difference:+.2f}" if self.unit else f"{difference:+.3g}"


ACCURACY = Metric("accuracy")


def of_study(config, study):
    """The Metrics that a config's study is about, the leading one first."""
    asked = config["studies"][study]
    numbers = bool(fit.of_numbers(config, asked))
    return tuple(map(Metric, asked.get("metrics", DEFAULTS[numbers])))


def predictions(run, folder):
    """What a run has predicted: pandas.DataFrame of sample, true, predicted, and of classes scores.

    Args:
        run: its metrics.json.
        folder: where it is.

    Raises:
        ValueError: the file was changed since.
    """
    import pandas as pd  # which the workflow, that asks for names only, is spared

    return pd.read_parquet(written(run, folder, "predictions.parquet"))


def written(run, folder, name):
    """The path of a file of a run's results, which is what the run wrote.

    Args:
        run, folder: as of predictions().

    Raises:
        ValueError: it was changed since.
    """
    file = Path(folder) / name
    if sha256(file) != run["files"][name]:
        raise ValueError(f"{file} is not what the run wrote. Delete {folder} to train again")
    return file


def measured(run, folder, wanted):
    """Name -> value of each Metric of a run; NaN where it diverged, or it cannot be said.

    Args:
        run: its metrics.json.
        folder: where its predictions are, read only where the record does not tell.
        wanted: Metrics.
    """
    if run["diverged"]:
        return dict.fromkeys((metric.name for metric in wanted), math.nan)
    told = {each.name: run[each.name] for each in wanted if each.name in run}
    missing = [each.name for each in wanted if each.name not in told]
    if missing:
        found = predictions(run, folder)
        given = found["true"].to_numpy(), found["predicted"].to_numpy(), probabilities(found)
        told |= {name: float(MEASURES[name](*given)) for name in missing}
    # In the order of `wanted`, the leading one first.
    found = {each.name: told[each.name] for each in wanted}
    return {name: math.nan if value is None else value for name, value in found.items()}


def probabilities(found):
    """The softmax of scores, (n, classes) float64; None: numbers are predicted."""
    if "scores" not in found:
        return None
    scores = np.stack(found["scores"]).astype(np.float64)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
