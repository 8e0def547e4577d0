"""Compare scores with a paired test that is valid for cross-validation. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from allcores_study.analysis import tidy

if TYPE_CHECKING:
    from allcores_study.analysis.metrics import Metric

SIGNIFICANT = 0.05
TEST_SAMPLES = "test_samples"  # the column of runs that names which samples a run was scored on
# What is trained, whatever the setup.
TRAINED = ["dataset", "model", "schedule", "train_size"]
# Scores that differ by a smaller share of their scale are equal: the order of additions alone makes
# such differences.
ROUNDING = 1e-6
LARGEST = 300.0  # exponent for which exp() does not overflow, even multiplied
DIFFERS, NOT_SIGNIFICANT = "differs", "no significant difference"
IDENTICAL, UNKNOWN = "identical in every pair", "cannot be tested: no spread"


def corrected_t_test(
    differences: np.ndarray | pd.Series, held_out_per_trained: float, confidence: float = 0.95
) -> tuple[float, float, float, float]:
    """Compute Nadeau and Bengio's corrected resampled t-test of paired differences.

    The folds of a cross-validation share most of their training samples, so an ordinary paired
    t-test finds differences where there are none. The correction adds the ratio of test samples to
    training samples to the variance of the mean: (1/J + n_test/n_train) s^2.

    Nadeau, Bengio: Inference for the generalization error. Machine Learning 52, 2003. For
    several seeds: Bouckaert, Frank: Evaluating the replicability of significance tests, 2004.

    Args:
        differences: of J pairs of runs that differ in one thing only, (J,).
        held_out_per_trained: n_test / n_train; 0 if the runs do not resample the data.
        confidence: of the interval.

    Returns:
        (mean, low, high, p): the interval of the mean, and the two-sided p value. All except the
        mean are NaN if there is one pair, or if all differences are equal.
    """
    count, mean = len(differences), float(np.mean(differences))
    if np.ptp(differences) <= ROUNDING * np.max(np.abs(differences)):
        return mean, math.nan, math.nan, math.nan
    error = math.sqrt((1 / count + held_out_per_trained) * np.var(differences, ddof=1))
    reach = float(stats.t.ppf((1 + confidence) / 2, count - 1)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, count - 1))
    return mean, mean - reach, mean + reach, p


def interval(runs: pd.DataFrame, metric: Metric) -> tuple[float, float]:
    """Return (low, high), the 95 % interval of the mean score of repeated runs; NaN for one run.

    It has the same correction as differences, because folds share training samples.
    """
    scored = independent(runs[runs["score"].notna()])
    if len(scored) < 2:
        return math.nan, math.nan
    mean, _, high, _ = corrected_t_test(scored["score"], held_out_per_trained(scored))
    if math.isnan(high):  # without spread
        return math.nan, math.nan
    return within(mean, high - mean, *metric.bounds)


def mean(runs: pd.DataFrame) -> float:
    """Return the mean score of repeated runs, in the middle of their interval(); NaN: no scores."""
    return float(independent(runs[runs["score"].notna()])["score"].mean())


def independent(runs: pd.DataFrame) -> pd.DataFrame:
    """Return runs, those with the same test samples as one row of their means.

    Few groups can be divided in few ways, so that other seeds may have the same folds. Such runs
    are no further evidence on other samples.

    Args:
        runs: rows of runs.csv, or pairs of them, of one setup.
    """
    is_resampled = len(runs) and runs["split"].iloc[0].startswith("fold")
    if TEST_SAMPLES not in runs or not is_resampled:
        return runs
    counted = ("score", "held_out_samples", "train_samples")
    means = {name: "mean" for name in runs if name.startswith(counted)}
    return runs.groupby(TEST_SAMPLES, sort=False).agg({"split": "first"} | means)


def within(
    mean: float, reach: float, least: float | None, most: float | None
) -> tuple[float, float]:
    """Return (low, high), about mean -+ reach, but within bounds; each bound may be None.

    By the delta method, the interval is symmetric in the logit of the mean, or in its logarithm if
    there is one bound. See the logit interval in Brown, Cai, DasGupta: Interval estimation for a
    binomial proportion. Statistical Science 16, 2001.
    """
    if least is None and most is None:
        return mean - reach, mean + reach
    if most is None:
        assert least is not None  # see above
        above = mean - least
        factor = math.exp(min(reach / above, LARGEST))
        return least + above / factor, least + above * factor
    if least is None:
        low, high = within(-mean, reach, -most, None)
        return -high, -low
    share = (mean - least) / (most - least)
    odds = share / (1 - share)
    factor = math.exp(min(reach / (most - least) / (share * (1 - share)), LARGEST))
    shares = [value / (1 + value) for value in (odds / factor, odds * factor)]
    return tuple(least + (most - least) * share for share in shares)  # type: ignore[return-value]


def held_out_per_trained(runs: pd.DataFrame) -> float:
    """Return n_test / n_train of runs; 0 for a fixed test set."""
    resampled = runs["split"].iloc[0].startswith("fold")
    return runs["held_out_samples"].sum() / runs["train_samples"].sum() if resampled else 0.0


def holm(p_values: Sequence[float] | np.ndarray | pd.Series) -> np.ndarray:
    """Correct p values for multiple comparisons; NaN stays NaN and does not count.

    Holm: A simple sequentially rejective multiple test procedure, 1979.
    """
    p_values = np.asarray(p_values, dtype=float)
    corrected = np.full(len(p_values), np.nan)
    order = [i for i in np.argsort(p_values) if not np.isnan(p_values[i])]
    least = 0.0
    for position, index in enumerate(order):
        least = max(least, min(1.0, (len(order) - position) * p_values[index]))
        corrected[index] = least
    return corrected


def of_baseline(runs: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Return the runs of the baseline strategy on its fewest cores.

    They are those of each dataset, model, schedule and training-set size. If several setups have
    as few cores, the one with most runs counts.
    """
    candidates = runs[runs["strategy"] == baseline]
    fewest = candidates.groupby(TRAINED)["cores"].transform("min")
    candidates = candidates[candidates["cores"] == fewest]
    setups = candidates.groupby(tidy.SETTINGS, sort=False).size().rename("count").reset_index()
    setups = setups.sort_values("count", ascending=False, kind="stable").drop_duplicates(TRAINED)
    chosen = pd.MultiIndex.from_frame(setups[tidy.SETTINGS])
    return candidates[pd.MultiIndex.from_frame(candidates[tidy.SETTINGS]).isin(chosen)]


def compare(
    runs: pd.DataFrame, base: pd.DataFrame, same: Sequence[str], metric: Metric
) -> pd.DataFrame:
    """Compare scores with those of a baseline.

    Args:
        runs, base: one row per run, as in runs.csv.
        same: the columns in which runs and baseline agree; runs are paired by fold and seed.
        metric: of the scores.

    Returns:
        One row per combination of tidy.SETTINGS: pairs; difference: score minus the baseline's;
        low, high: its 95 % interval; at_most: the larger of their distances from 0; p, p_corrected;
        finding: in words.
    """
    # Runs that diverged have no score to compare.
    runs, base = runs[runs["score"].notna()], base[base["score"].notna()]
    paired = runs.merge(base, on=[*same, *tidy.REPEAT], suffixes=("", "_base"))
    rows = []
    for settings, pairs in paired.groupby(tidy.SETTINGS, sort=False):
        pairs = independent(pairs)
        differences = without_rounding(pairs["score"], pairs["score_base"], metric)
        mean, low, high, p = corrected_t_test(differences, held_out_per_trained(pairs))
        rows.append(
            dict(zip(tidy.SETTINGS, settings, strict=True))
            | {
                "pairs": len(pairs),
                "difference": mean,
                "low": low,
                "high": high,
                "at_most": max(abs(low), abs(high)),
                "p": p,
            }
        )
    names = [*tidy.SETTINGS, "pairs", "difference", "low", "high", "at_most", "p"]
    table = pd.DataFrame(rows, columns=names)
    table["p_corrected"] = holm(table["p"])
    table["finding"] = [finding(row) for _, row in table.iterrows()]
    return table


def without_rounding(scores: pd.Series, base: pd.Series | float, metric: Metric) -> pd.Series:
    """Return the differences of scores; 0 where they are equal up to rounding.

    The scale of an error is its own size, because it has the unit of the targets, or is near 0 for
    good models. Metrics whose best value is 1 have the scale 1.
    """
    differences = scores - base
    scale = 1.0 if metric.sign > 0 else np.maximum(scores.abs(), abs(base))
    return differences.where(differences.abs() > ROUNDING * scale, 0.0)


def finding(row: pd.Series) -> str:
    """Return whether the difference in a row is significant, in words."""
    if not np.isnan(row["p_corrected"]):
        return DIFFERS if row["p_corrected"] < SIGNIFICANT else NOT_SIGNIFICANT
    return IDENTICAL if row["pairs"] > 1 and row["difference"] == 0 else UNKNOWN
