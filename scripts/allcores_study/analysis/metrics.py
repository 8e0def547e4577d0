"""Score predictions with the metrics in measures.py or a user's."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from allcores_study.config import grid, registry, scoring
from allcores_study.records.run_files import PREDICTIONS, checked
from allcores_study.tasks import base as tasks

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    Function = TypeVar("Function", bound=Callable[..., Any])


def metric(
    title: str,
    targets: tuple[str, ...] = ("classes",),
    in_percent: bool = False,
    less_is_better: bool = False,
    bounds: tuple[float | None, float | None] = (None, None),
) -> Callable[[Function], Function]:
    """Declare the traits of a metric, which Metric.of() reads from the file.

    Args:
        title: its name in sentences, tables and axes.
        targets: TARGETS of the tasks that it can score.
        in_percent: show values in per cent.
        less_is_better: true for errors.
        bounds: the smallest and the largest possible value; None: there is no such bound.
    """
    return lambda function: function


@dataclass(frozen=True)
class Metric:
    """A metric of a study.

    Attributes:
        name: in the config and as a column: a function of measures.py, or a user's, as in
            "my_metrics:top2".
        title, targets, in_percent, less_is_better, bounds: see metric().
    """

    name: str
    title: str
    targets: tuple[str, ...] = ("classes",)
    in_percent: bool = False
    less_is_better: bool = False
    bounds: tuple[float | None, float | None] = (None, None)

    @classmethod
    def of(cls, name: str) -> Metric:
        """Return the metric with a name, without importing its module.

        Raises:
            KeyError, ValueError: there is none; see registry.metric().
        """
        function = registry.metric(name)
        names = [field.name for field in fields(cls)][1:]
        traits = {key: function.constants[key] for key in names if key in function.constants}
        return cls(name, **{"title": function.attribute} | traits)

    def __str__(self) -> str:
        return self.title

    def measure(self, *predictions: np.ndarray | None) -> float:
        """Compute its value for predictions; see measures.py for the arguments.

        Raises:
            ValueError: the value is beyond the bounds that the metric declares.
        """
        value = float(registry.metric(self.name).load()(*predictions))
        least, most = self.bounds
        if (least is not None and value < least) or (most is not None and value > most):
            raise ValueError(
                f"the metric {self.name} gave {value:.6g}; expected a value within the bounds that "
                f"it declares, {self.bounds}"
            )
        return value

    @property
    def scale(self) -> float:
        """The factor between values and what is shown."""
        return 100.0 if self.in_percent else 1.0

    @property
    def unit(self) -> str:
        return "%" if self.in_percent else ""

    @property
    def sign(self) -> int:
        """1 if more is better, else -1."""
        return -1 if self.less_is_better else 1

    @property
    def axis(self) -> str:
        """The label of an axis."""
        return f"{self} (%)" if self.unit else str(self)

    def text(self, value: float, digits: int = 2) -> str:
        """Format a value: "96.33%", "0.4821"."""
        return f"{value:.{digits}%}" if self.unit else f"{value:.4g}"

    def points(self, difference: float, digits: int = 2) -> str:
        """Format a difference: "1.20 points", "0.012"."""
        return f"{100 * difference:.{digits}f} points" if self.unit else f"{difference:.3g}"

    def interval(self, low: float, high: float) -> str:
        """Format an interval: "91.2 to 97.5", "0.41 to 0.523"."""
        digits = ".1f" if self.unit else ".3g"
        return f"{self.scale * low:{digits}} to {self.scale * high:{digits}}"


ACCURACY = Metric.of("accuracy")
PART = 2**20  # values of predictions that are read or written at a time


def of_study(config: dict[str, Any], study: str) -> tuple[Metric, ...]:
    """Return the metrics of a study, the leading one first."""
    settings = config["studies"][study]
    datasets = [grid.labelled(config, "datasets", label) for label in settings["datasets"]]
    return tuple(map(Metric.of, scoring.metrics_of(settings, datasets)))


def predictions(run: dict[str, Any], folder: str | Path) -> pd.DataFrame:
    """Read the predictions of a run.

    The columns are sample, true, predicted, and scores or probabilities of classes and labels. For
    several numbers, true and predicted have lists, and `output` has the names of the numbers.

    Args:
        run: content of its metrics.json.

    Raises:
        ValueError: the file has changed since it was written.
    """
    import pandas as pd  # only now: the workflow, which needs only names, does without
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(checked(folder, run, PREDICTIONS)))
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    values = sum(one.column(place).num_values for one in groups for place in range(one.num_columns))
    # In parts: Parquet decodes masks to many times their size.
    rows = max(1, PART * file.metadata.num_rows // max(1, values))
    frame = pa.Table.from_batches(file.iter_batches(rows), file.schema_arrow).to_pandas()
    if not run["names"] or "confusion" in run:
        return frame
    # Without a type if there is no row, since the run diverged.
    return frame.assign(output=pd.Series([run["names"]] * len(frame), dtype=object))


def measured(
    run: dict[str, Any], folder: str | Path, metrics: Sequence[Metric]
) -> dict[str, float]:
    """Return name -> value of each metric of a run; NaN if it diverged or the value is undefined.

    Args:
        run: content of its metrics.json.
        folder: of the run; read only for metrics that the record lacks.
        metrics: in the order of the result, the leading one first.
    """
    names = [metric.name for metric in metrics]
    if run["diverged"]:
        return dict.fromkeys(names, math.nan)
    values = {name: run[name] for name in names if name in run}
    missing = [metric for metric in metrics if metric.name not in values]
    if missing:
        arguments = arguments_of(predictions(run, folder))
        values |= {metric.name: metric.measure(*arguments) for metric in missing}
    return {name: math.nan if values[name] is None else values[name] for name in names}


def arguments_of(frame: pd.DataFrame) -> tuple[np.ndarray | None, ...]:
    """Return the arguments of a metric: true and predicted values, and probabilities.

    Args:
        frame: predictions() of one model, or some of its rows.
    """
    answers: Any = [frame[name].to_numpy() for name in ("true", "predicted")]
    if answers[0].dtype == object:  # lists of several numbers
        answers = map(np.stack, answers)
    return *answers, probabilities(frame)


def probabilities(frame: pd.DataFrame) -> np.ndarray | None:
    """Return tasks.base.probabilities() of a frame.

    Args:
        frame: predictions() of one model.
    """
    names = [name for name in ("probabilities", "scores") if name in frame]
    given = [name for name in names if frame[name].notna().all()]
    predicted = frame["predicted"].to_numpy()
    is_list = predicted.dtype == object
    columns = {name: np.stack(frame[name]) for name in given}
    return tasks.probabilities(
        {"predicted": np.stack(predicted) if is_list else predicted, **columns}
    )
