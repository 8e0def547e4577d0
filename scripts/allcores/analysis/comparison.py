"""Do scores differ? A paired test that is right for cross-validation. No torch."""

import math

import numpy as np
import pandas as pd
from scipy import stats

from allcores.analysis import tidy

SIGNIFICANT = 0.05
# Scores that differ by less than that share of their scale are equal: only the order of additions
# makes them differ.
ROUNDING = 1e-6
DIFFERS, NOT_FOUND = "differs", "cannot be told apart"
IDENTICAL, UNKNOWN = "identical in every pair", "cannot be said: no spread"


def corrected_t_test(differences, held_out_per_trained, confidence=0.95):
    """Nadeau and Bengio's corrected resampled t-test of paired differences.

    The folds of a cross-validation share most of their training samples, so that an ordinary
    paired t-test finds differences where there are none. The correction adds the share of
    held-out to training samples to the variance of the mean: (1/J + n_test/n_train) s^2.

    Nadeau, Bengio: Inference for the generalization error. Machine Learning 52, 2003. For
    several seeds: Bouckaert, Frank: Evaluating the replicability of significance tests, 2004.

    Args:
        differences: of J pairs of runs that differ in one thing only, (J,).
        held_out_per_trained: n_test / n_train; 0 where the runs do not resample the data.

    Returns:
        (mean, low, high, p): the interval of the mean, and the two-sided p value. All but the mean
        are NaN where there is no spread to judge it by: for one pair, or differences all the same.
    """
    count, mean = len(differences), float(np.mean(differences))
    if np.ptp(differences) <= ROUNDING * np.max(np.abs(differences)):
        return mean, math.nan, math.nan, math.nan
    error = math.sqrt((1 / count + held_out_per_trained) * np.var(differences, ddof=1))
    reach = float(stats.t.ppf((1 + confidence) / 2, count - 1)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, count - 1))
    return mean, mean - reach, mean + reach, p


def half_width(runs):
    """Half the width of the 95 % interval of the mean score of a cell's runs; NaN for one run.

    The same correction as for differences: folds share training samples.
    """
    ended = runs[runs["score"].notna()]
    if len(ended) < 2:
        return math.nan
    _, low, high, _ = corrected_t_test(ended["score"], held_out_per_trained(ended))
    return (high - low) / 2


def held_out_per_trained(runs):
    """n_test / n_train of a cell's runs; 0 where a fixed test set is held out."""
    resampled = runs["split"].iloc[0].startswith("fold")
    return runs["held_out_samples"].sum() / runs["train_samples"].sum() if resampled else 0.0


def holm(p_values):
    """p values corrected for there being several (Holm: A simple sequentially rejective multiple
    test procedure, 1979); NaN stays NaN and does not count."""
    p_values = np.asarray(p_values, dtype=float)
    corrected = np.full(len(p_values), np.nan)
    order = [i for i in np.argsort(p_values) if not np.isnan(p_values[i])]
    least = 0.0
    for position, index in enumerate(order):
        least = max(least, min(1.0, (len(order) - position) * p_values[index]))
        corrected[index] = least
    return corrected


def compare(runs, base, same, metric):
    """How the score of each cell of runs differs from that of a baseline.

    Args:
        runs, base: one row per run, as in runs.csv.
        same: the columns in which a cell and its baseline agree; runs are paired by fold and seed.
        metric: metrics.Metric, of the scores.

    Returns:
        One row per cell: pairs; difference: score minus the baseline's; low, high: its 95 %
        interval; at_most: the larger of their distances from 0; p, p_corrected; finding: in words.
    """
    # Runs that diverged have no score to compare.
    runs, base = runs[runs["score"].notna()], base[base["score"].notna()]
    paired = runs.merge(base, on=[*same, *tidy.REPEAT], suffixes=("", "_base"))
    rows = []
    for cell, pairs in paired.groupby(tidy.CELL, sort=False):
        differences = without_rounding(pairs["score"], pairs["score_base"], metric)
        mean, low, high, p = corrected_t_test(differences, held_out_per_trained(pairs))
        rows.append(
            dict(zip(tidy.CELL, cell, strict=True))
            | {
                "pairs": len(pairs),
                "difference": mean,
                "low": low,
                "high": high,
                "at_most": max(abs(low), abs(high)),
                "p": p,
            }
        )
    names = [*tidy.CELL, "pairs", "difference", "low", "high", "at_most", "p"]
    table = pd.DataFrame(rows, columns=names)
    table["p_corrected"] = holm(table["p"])
    table["finding"] = [_finding(row) for _, row in table.iterrows()]
    return table


def without_rounding(scores, base, metric):
    """Their differences; 0 where they are equal up to rounding.

    An error has the unit of the targets, or is near 0 where a model is good: its scale is its own
    size. What is 1 at best has that scale.
    """
    differences = scores - base
    scale = 1.0 if metric.sign > 0 else np.maximum(scores.abs(), abs(base))
    return differences.where(differences.abs() > ROUNDING * scale, 0.0)


def _finding(row):
    if not np.isnan(row["p_corrected"]):
        return DIFFERS if row["p_corrected"] < SIGNIFICANT else NOT_FOUND
    return IDENTICAL if row["pairs"] > 1 and row["difference"] == 0 else UNKNOWN
