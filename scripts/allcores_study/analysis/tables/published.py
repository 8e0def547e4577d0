"""Published scores beside those measured here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from allcores_study.analysis import comparison, tidy

if TYPE_CHECKING:
    from allcores_study.analysis.products import StudyFacts

TITLE = "{metric} published elsewhere"
SECTION = "{metric}"
WHEN = "published_scores"
ORDER = 52
CAPTION = """
Published scores beside the {metric} of the same model in this study. *published*: the score, as
published. *score*: the mean over folds and seeds for each schedule and setup. *low 95*, *high 95*:
its 95 % interval, if there are several runs. *difference*: our score minus the published one. The
published scores may come from other splits, seeds and scaling of the data.
"""
COMPARED = ("published_by", "published", "score", "difference")


def table(runs: pd.DataFrame, facts: StudyFacts) -> pd.DataFrame:
    """Return one row per published score and combination of settings of its model."""
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
