"""How good predictions are, by metrics of measures.py, or a user's own."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from allcores.files import sha256
from allcores.study import fit, registry

# What a study is about that does not say it: by whether its targets are numbers.
DEFAULTS = {False: ("accuracy",), True: ("r2", "rmse", "mae")}


def metric(title, of_numbers=False, in_percent=False, less_is_better=False):
    """Decorates the function of a metric, to say what it is; read from the file, see Metric.of().

    Args:
        title: as sentences, tables and axes call it.
        of_numbers: whether the targets that it judges are numbers, not classes.
        in_percent: whether values are shown so.
        less_is_better: as of an error.
    """
    return lambda function: function


@dataclass(frozen=True)
class Metric:
    """One that a study is about.

    Attributes:
        name: by which a config and columns call it: of a function of measures.py, or the path of an
            own one, my_metrics:top2.
        title, of_numbers, in_percent, less_is_better: as of metric().
    """

    name: str
    title: str
    of_numbers: bool = False
    in_percent: bool = False
    less_is_better: bool = False

    @classmethod
    def of(cls, name):
        """That of a name, of which nothing is imported.

        Raises:
            KeyError, ValueError: there is none, as of registry.metric().
        """
        found = registry.metric(name)
        traits = ("title", "of_numbers", "in_percent", "less_is_better")
        said = {key: found.constants[key] for key in traits if key in found.constants}
        return cls(name, **{"title": found.attribute} | said)

    def __str__(self):
        return self.title

    def measure(self, *predictions):
        """Its value: a number; see measures.py for what it takes."""
        return float(registry.metric(self.name).load()(*predictions))

    @property
    def scale(self):
        """By which values are multiplied to be told."""
        return 100.0 if self.in_percent else 1.0

    @property
    def unit(self):
        return "%" if self.in_percent else ""

    @property
    def sign(self):
        """1 where more is better, else -1."""
        return -1 if self.less_is_better else 1

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


ACCURACY = Metric.of("accuracy")


def of_study(config, study):
    """The Metrics that a config's study is about, the leading one first."""
    asked = config["studies"][study]
    numbers = bool(fit.of_numbers(config, asked))
    return tuple(map(Metric.of, asked.get("metrics", DEFAULTS[numbers])))


def columns(table):
    """The Metrics that a table has columns of."""
    known = registry.metrics()
    return [Metric.of(name) for name in table if name in known or ":" in name]


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
    missing = [metric for metric in wanted if metric.name not in told]
    if missing:
        found = predictions(run, folder)
        given = found["true"].to_numpy(), found["predicted"].to_numpy(), probabilities(found)
        told |= {metric.name: metric.measure(*given) for metric in missing}
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
