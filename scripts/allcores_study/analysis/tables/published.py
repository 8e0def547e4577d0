"""Scores that others have published, beside those measured here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from allcores_study.analysis import comparison, tidy

if TYPE_CHECKING:
    from allcores_study.analysis.products import Facts

TITLE = "{metric} published elsewhere"
SECTION = "{metric}"
WHEN = "published_scores"
ORDER = 52
CAPTION = """
Scores that others have published, as they were published, beside the {metric} of the same model
here: the mean over folds and seeds of each schedule and setup, with its 95 % interval where there
are several runs. *difference*: ours minus theirs. Theirs may be of other splits, seeds and scaling
of the data.
"""
COMPARED = ("published_by", "published", "score", "difference")


def table(runs: pd.DataFrame, facts: Facts) -> pd.DataFrame:
    """One row per published score and combination of settings of its model."""
    rows = []
    for reference in facts.references:
        if "score" not in reference:
            continue
        own = runs[runs["model"] == reference["model"]]
        for settings, repeats in own.groupby(tidy.SETTINGS, sort=False):
            low, high = comparison.interval(repeats, facts.metric)
            score = repeats["score"].mean()
            rows.append(
                dict(zip(tidy.SETTINGS, settings, strict=True))
                | {"published_by": reference["label"], "published": reference["score"]}
                | {"score": score, "low_95": low, "high_95": high, "runs": len(repeats)}
                | {"difference": score - reference["score"]}
            )
    names = ["published_by", "published", "score", "low_95", "high_95", "runs", "difference"]
    return pd.DataFrame(rows, columns=[*tidy.SETTINGS, *names])
