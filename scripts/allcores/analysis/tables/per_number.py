"""How well each of several numbers is predicted."""

from allcores.analysis import tidy
from allcores.analysis.wording import Number

TITLE = "scores per number"
SECTION = "{metric}"
WHEN = "several_numbers"
ORDER = 63
CAPTION = """
Of each number that is predicted the mean over folds and seeds of *r2*, the coefficient of
determination, *rmse*, the root of the mean squared error, and *mae*, the mean absolute error, in
the number's unit. The scores of the other tables are means over the numbers.
"""
NUMBERS = dict.fromkeys(("r2", "rmse", "mae"), Number("{:.4g}"))


def table(numbers):
    """One row per combination of settings and number."""
    means = numbers.groupby([*tidy.SETTINGS, "number"], sort=False)[["r2", "rmse", "mae"]].mean()
    return means.reset_index()
