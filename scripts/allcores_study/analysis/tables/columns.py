"""Which columns of a table do the best models use?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from allcores_study.analysis import comparison, tidy, wording

if TYPE_CHECKING:
    from allcores_study.analysis.products import StudyFacts

TITLE = "which columns matter"
CAPTION = """
Permutation importance of each column of the data for the two best models, by scikit-learn: how much
worse {metric} on the test folds is after the values of the column were shuffled among the samples.
*importance*: the mean over up to five runs (folds and seeds). Each run shuffles a column up to five
times and uses up to 1,000 test samples. The indicators of a column's categories are shuffled
together. *low*, *high*: the 95 % interval of the mean, corrected for folds that share training
samples, not for multiple comparisons. *positive*: the share of runs with an importance above 0.
Correlated columns share their importance, so each of them may look unimportant. The importance
describes these models. It shows no causes.
"""
MOST_NAMED = 3
NUMBERS = {"importance": wording.DIFFERENCE, "positive": wording.percent(0)}


def table(importance: pd.DataFrame, runs: pd.DataFrame, facts: StudyFacts) -> pd.DataFrame:
    """Return one row per model and column: the best model first, its most important column first.

    Args:
        importance: one row per run and column.
    """
    of_baseline = comparison.of_baseline(runs, facts.baseline).drop(columns="score")
    scored = importance.rename(columns={"importance": "score"})
    scored = scored.merge(of_baseline, on=[*comparison.TRAINED, *tidy.REPEAT])
    rows = []
    for settings, repeats in scored.groupby([*comparison.TRAINED, "column"], sort=False):
        alike = comparison.independent(repeats)
        per_trained = comparison.held_out_per_trained(alike)
        mean, low, high, _ = comparison.corrected_t_test(alike["score"], per_trained)
        rows.append(
            dict(zip([*comparison.TRAINED, "column"], settings, strict=True))
            | {"importance": mean, "low": low, "high": high}
            | {"positive": (repeats["score"] > 0).mean(), "runs": len(repeats)}
        )
    names = [*comparison.TRAINED, "column", "importance", "low", "high", "positive", "runs"]
    table = pd.DataFrame(rows, columns=names)
    models = [
        model.sort_values("importance", ascending=False, kind="stable")
        for _, model in table.groupby(comparison.TRAINED, sort=False)
    ]
    return pd.concat(models) if models else table


def sentences(columns_table: pd.DataFrame) -> Iterator[str]:
    """Yield the columns that the best model clearly uses most."""
    shown = tidy.varying(columns_table, ["dataset"])
    for dataset, rows in columns_table.groupby("dataset", sort=False):
        model = rows["model"].iloc[0]
        names = _used_most(rows[rows["model"] == model])
        if names:
            where = f"{dataset}: the" if shown else "The"
            which, verb = ("column", "is") if len(names) == 1 else ("columns", "are")
            yield f"{where} {which} that {model} uses most {verb} {wording.in_a_row(names)}."


def _used_most(of_model: pd.DataFrame) -> list[str]:
    """Return the first columns, MOST_NAMED at most, whose intervals are above the next column.

    Args:
        of_model: rows of a model, the most important column first.
    """
    following = of_model["importance"].shift(-1, fill_value=0.0).clip(lower=0.0)
    for count in range(min(MOST_NAMED, len(of_model)), 0, -1):
        if (of_model["low"][:count] > following.iloc[count - 1]).all():
            return list(of_model["column"][:count])
    return []
