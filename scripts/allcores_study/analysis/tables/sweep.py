"""The score of each candidate of a sweep, and how often it was chosen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from allcores.machine.costs import core_time
from allcores_study.analysis import style, tidy
from allcores_study.analysis.selection import SWEPT_COLUMN
from allcores_study.analysis.wording import Number, count, number

if TYPE_CHECKING:
    from allcores_study.analysis.products import StudyFacts

TITLE = "candidates of the sweep"
CAPTION = """
Candidates of each sweep. *score*: the mean {metric} over folds, seeds and inner folds if the study
selects, otherwise the mean on the test folds. *low*, *high*: the range over folds and seeds.
*chosen*: in how many folds the candidate was the best, and was then trained on the whole training
set; the {metric} of the chosen candidates is in the table of scores. *epochs*: how many it was
trained, averaged over folds. *core hours*: the time spent on it.
"""
COMPARED = ("candidate", "score", "chosen", "core_hours")

# Candidates are compared if these columns are equal.
SAME = tidy.SETTINGS
# Columns that this table formats differently from wording.NUMBERS.
NUMBERS = dict.fromkeys(("low", "high"), number)
OTHERS = Number("{:g}")  # swept values
MOST_TOLD = 6  # sweeps that get a sentence each
WITHOUT_INNER = (
    "The other tables and figures show the runs of the chosen candidates, without the inner runs."
)


def table(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return one row per candidate and combination of settings; CAPTION explains the columns."""
    values = [name for name in candidates if name.startswith(SWEPT_COLUMN)]
    groups = candidates.groupby([*SAME, "candidate"], sort=False)
    table = groups.agg(
        **{name: (name, "first") for name in values},
        folds=("score", "size"),
        score=("score", lambda scores: scores.mean(skipna=False)),
        low=("score", "min"),
        high=("score", "max"),
        chosen=("chosen", lambda flags: flags.astype(bool).sum() if flags.notna().all() else None),
        epochs=("epochs", "mean"),
        core_hours=("core_seconds", lambda seconds: seconds.sum() / 3600),
    )
    return table.reset_index()


def chosen(sweep_table: pd.DataFrame) -> Iterator[str]:
    """Yield what was chosen for each combination of settings, if the study selects.

    If there are many, the only sentence points to the table.
    """
    groups = list(_groups(sweep_table[sweep_table["chosen"].notna()]))
    if len(groups) > MOST_TOLD:
        yield (
            f"In each of {len(groups)} sweeps, a candidate was chosen for each fold and seed on "
            "the training set alone; the table of candidates lists them."
        )
        return
    for title, group in groups:
        times = group["chosen"].sum()
        compared = round(group["folds"].sum() / times)
        rows = group[group["chosen"] > 0].sort_values("chosen", ascending=False)
        names = [f"{_in_words(row)} ({_times(row['chosen'])})" for _, row in rows.iterrows()]
        always = f"always {_in_words(rows.iloc[0])}" if len(names) == 1 else "; ".join(names)
        yield (
            f"{title}: one of {count(compared, 'candidate')} was chosen for each fold and seed, on "
            f"the training set alone ({count(round(times), 'choice')}): {always}."
        )


def sentences(sweep_table: pd.DataFrame, facts: StudyFacts) -> Iterator[str]:
    """Yield the cost of the sweeps, and the best candidate if the study does not select."""
    groups = list(_groups(sweep_table))
    if len(groups) > MOST_TOLD and sweep_table["chosen"].notna().all():
        cost = core_time(3600 * sweep_table["core_hours"].sum())
        yield f"Choosing took {cost}. {WITHOUT_INNER}"
        return
    for title, group in groups:
        cost = core_time(3600 * group["core_hours"].sum())
        whole = group[group["folds"] == group["folds"].max()]  # the others lack runs
        if whole["score"].isna().all():
            yield f"{title}: no candidate has a score in all of its runs."
        elif group["chosen"].isna().all():
            best = whole.loc[(facts.metric.sign * whole["score"]).idxmax()]
            yield (
                f"{title}: of {count(len(group), 'candidate')}, {_in_words(best)} has the best "
                f"{facts.metric}, {facts.metric.text(best['score'])}. The best of several scores "
                f"is an optimistic estimate; `select` gives a fair one. Cost: {cost}."
            )
        else:
            yield f"{title}: choosing took {cost}. {WITHOUT_INNER}"


def _times(number: float) -> str:
    return "once" if number == 1 else f"{number:.0f} times"


def _in_words(row: pd.Series) -> str:
    """Return the values of a candidate: "hidden 64-32, lr 0.0017"."""
    parts = []
    for name in (name for name in row.index if name.startswith(SWEPT_COLUMN)):
        value = row[name]
        if not pd.isna(value):
            parts.append(f"{name.removeprefix(SWEPT_COLUMN).replace('_', ' ')} {_text(value)}")
    return ", ".join(parts) or row["candidate"]


def _text(value: Any) -> str:
    """Return a swept value; of a list, its elements: "64-32"."""
    if isinstance(value, float):  # also of whole numbers, where another sweep lacks the key
        return str(int(value)) if value.is_integer() else f"{value:.3g}"
    text = str(value)
    return text.strip("[]").replace(", ", "-") if text.startswith("[") else text


def _groups(sweep_table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield (title, rows) of each combination of settings."""
    shown = ["model", *tidy.varying(sweep_table, [name for name in SAME if name != "model"])]
    for names, group in sweep_table.groupby(shown, sort=False):
        yield style.title(shown, names), group
