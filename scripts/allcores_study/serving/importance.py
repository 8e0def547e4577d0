"""Permutation importance of the columns of a table, for the best models of a study."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import threadpoolctl

from allcores_study.analysis import comparison, tidy
from allcores_study.analysis.tables import models
from allcores_study.tasks import base as tasks

if TYPE_CHECKING:
    from allcores_study.analysis.metrics import Metric
    from allcores_study.analysis.products import StudyFacts
    from allcores_study.analysis.study import Study
    from allcores_study.data.storage import Dataset
    from allcores_study.serving.predictor import Predictor

NAME = "importance"  # of the frame, and of its column
LEAST_COLUMNS, MOST_COLUMNS = 2, 100  # of a table that is shuffled
# At most: models of a dataset, runs of each, samples of a run, and how often a column is shuffled.
MODELS, RUNS, SAMPLES, REPEATS = 2, 5, 1000, 5
# Of a dataset with many columns and runs, less, because large forests predict slowly: at most this
# many predictions and rows, but each column is shuffled once, with this many samples.
PREDICTIONS, ROWS, LEAST_SAMPLES = 500, 50_000, 100


def of_best(study: Study, frames: dict[str, Any]) -> pd.DataFrame:
    """Return one row per column and run of the two best models on each dataset.

    `importance` is how much worse the leading metric on the test fold is after the values of the
    column were shuffled. A run that cannot be loaded is named and left out.

    Args:
        frames: from analysis.collect.of_study().
    """
    names = [*comparison.TRAINED, *tidy.REPEAT, "column", NAME]
    return pd.DataFrame(_rows(study, frames), columns=names)


def _rows(study: Study, frames: dict[str, Any]) -> Iterator[dict[str, Any]]:
    run_of = {
        tuple(tidy.identity_of(study, run)[name] for name in tidy.RUN): run for run in study.runs
    }
    samples_of = dict(iter(frames["predictions"].groupby(tidy.RUN, sort=False)["sample"]))
    chosen = of_best_models(frames["runs"], study.facts)
    for label, runs in chosen.groupby("dataset", sort=False):
        dataset = frames["datasets"].get(label)
        columns = len(places_of(dataset)) if dataset else 0
        if not LEAST_COLUMNS <= columns <= MOST_COLUMNS:
            continue
        from allcores_study.serving import predictor  # torch, which other studies do without

        repeats, most = effort(columns, len(runs))
        for _, row in runs.iterrows():
            key = tuple(row[tidy.RUN])
            files = study.folder.run(run_of[key].path)
            samples = _some(samples_of[key].to_numpy(), most, row["seed"])
            try:
                with threadpoolctl.threadpool_limits(1):
                    found = of_model(
                        *(predictor.Predictor(files), dataset, samples, study.facts.metric),
                        *(repeats, row["seed"]),
                    )
            except Exception as error:  # from damaged files, or from a user's model
                print(f"{files} is left out of the importance of columns: {error}")
                continue
            of_run = row[[*comparison.TRAINED, *tidy.REPEAT]].to_dict()
            yield from (of_run | {"column": name, NAME: value} for name, value in found.items())


def of_best_models(runs: pd.DataFrame, facts: StudyFacts) -> pd.DataFrame:
    """Return the runs of the best models on each dataset, the best model first.

    A model counts with its best schedule. Only runs of the baseline and of the largest training set
    count.
    """
    runs = comparison.of_baseline(runs, facts.baseline)
    runs = runs[runs["train_size"].isin(runs.nlargest(1, "train_samples")["train_size"])]
    ranked = models.table(runs, facts).drop_duplicates(["dataset", "model"])
    best = ranked.groupby("dataset", sort=False).head(MODELS)
    of_best = best[comparison.TRAINED].merge(runs, on=comparison.TRAINED)
    whole = of_best[of_best["diverged"].isna()].sort_values("seed", kind="stable")
    return whole.groupby(comparison.TRAINED, sort=False).head(RUNS)


def effort(columns: int, runs: int) -> tuple[int, int]:
    """Return how often each column is shuffled in each run, and the most samples of a run."""
    repeats = min(REPEATS, max(1, PREDICTIONS // (columns * runs)))
    return repeats, min(SAMPLES, max(LEAST_SAMPLES, ROWS // (columns * runs * repeats)))


def _some(samples: np.ndarray, most: int, seed: int) -> np.ndarray:
    if len(samples) <= most:
        return samples
    return np.sort(np.random.default_rng(seed).choice(samples, most, replace=False))


def places_of(dataset: Dataset) -> dict[str, list[int]]:
    """Return column of the table -> places of its inputs: several, if it has categories."""
    places: dict[str, list[int]] = {}
    for place, column in enumerate(dataset.columns):
        places.setdefault(column["name"], []).append(place)
    return places


def of_model(
    predictor: Predictor,
    dataset: Dataset,
    samples: np.ndarray,
    metric: Metric,
    repeats: int,
    seed: int,
) -> dict[str, float]:
    """Return column -> its permutation importance for a model.

    It is that of sklearn.inspection.permutation_importance(), with its shuffles. All shuffled
    copies are predicted at once, since a small model's call takes longer than its numbers.

    Args:
        samples: positions of the test samples, (n,).
        repeats: how often each column is shuffled; the importance is the mean.

    Raises:
        ValueError: the metric is not defined for these samples.
    """
    places, inputs = places_of(dataset), np.asarray(dataset.inputs[samples])
    orders = _orders(len(samples), repeats, seed)
    copies = [inputs]
    for columns, order in itertools.product(places.values(), orders):
        shuffled = inputs.copy()
        shuffled[:, columns] = inputs[order][:, columns]
        copies.append(shuffled)
    scores = np.split(predictor.scores(np.concatenate(copies)), len(copies))

    def measured(scores: np.ndarray) -> float:
        found = predictor.task.predictions(scores, predictor.scaling)
        answers = dataset.targets[samples], found["predicted"], tasks.probabilities(found)
        return metric.sign * metric.measure(*answers)

    whole, *others = map(measured, scores)
    importances = whole - np.reshape(others, (len(places), repeats)).mean(axis=1)
    if not np.isfinite(importances).all():
        raise ValueError(f"its {metric} is not defined")
    return dict(zip(places, importances.tolist(), strict=True))


def _orders(count: int, repeats: int, seed: int) -> list[np.ndarray]:
    """Return the orders in which scikit-learn shuffles each column, (count,) each."""
    of_columns = np.random.RandomState(seed).randint(np.iinfo(np.int32).max + 1)
    random, drawn, orders = np.random.RandomState(of_columns), np.arange(count), [np.arange(count)]
    for _ in range(repeats):
        random.shuffle(drawn)
        orders.append(orders[-1][drawn])  # what was shuffled is shuffled again
    return orders[1:]
