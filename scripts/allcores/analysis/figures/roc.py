"""Plot how well scores separate classes: the ROC curve and the precision-recall curve."""

import numpy as np
from sklearn import metrics as sklearn_metrics

from allcores.analysis import metrics, style, tidy

TITLE = "how well are classes told apart?"
SECTION = "{metric}"
WHEN = "classes"
ORDER = 67
CAPTION = """
ROC and precision-recall curves of held-out samples, of the strategy ``{baseline}``: a thin line for
each run, since networks of other folds have other scores, and their mean at each rate. Of two
classes the positive one is the last; of more, each class is held against all others, a line for
each. *area*: the mean over runs of the area under the curve, in the right panels the average
precision. Dashed: guessing, in the right panels of two classes only. Of more than 24 models the
first are shown.
"""

GRID = np.linspace(0, 1, 101)
MOST_CLASSES = 6  # with more, a panel has the mean over classes only


def figure(predictions, classes, facts):
    """Two panels per dataset and model: ROC, and precision against recall."""
    pooled = predictions[predictions["strategy"] == facts.baseline]
    shown = ["model", *tidy.varying(pooled, ["dataset", "train_size"])]
    groups = list(pooled.groupby(shown, sort=False))[: style.MOST_PANELS]
    names_of = classes.groupby("dataset", sort=False)["class"].unique()
    figure, axes = style.panels(2 * len(groups), columns=4 if len(groups) > 1 else 2)
    pairs = zip(groups, axes[::2], axes[1::2], strict=True)
    for (values, group), left, right in pairs:
        names = names_of[group["dataset"].iloc[0]]
        runs = [run for _, run in group.groupby(tidy.RUN, sort=False)]
        _draw(left, runs, names, roc)
        left.plot([0, 1], [0, 1], color="0.7", lw=1, ls="--")
        left.set(xlabel="false positive rate", ylabel="true positive rate")
        _draw(right, runs, names, precision_recall)
        right.set(xlabel="recall", ylabel="precision", ylim=(0, 1.03))
        for panel in (left, right):
            style.name_panel(panel, shown, values)
        if len(names) == 2:
            share = (group["true"] == 1).mean()
            right.axhline(share, color="0.7", lw=1, ls="--")
    for panel in axes:
        panel.legend(loc="lower center")
    return figure


def _draw(panel, runs, names, curve):
    """The curves of each positive class: of each run, and their mean."""
    positives = [1] if len(names) == 2 else range(len(names))
    curves = {k: [found for run in runs if (found := curve(run, k))] for k in positives}
    if len(curves) > MOST_CLASSES:
        curves = {None: [pair for found in curves.values() for pair in found]}
    colours = style.phases(curves)
    for k, found in curves.items():
        if not found:  # no held-out part has this class
            continue
        colour, _ = colours[k]
        for values, _ in found if len(curves) == 1 and k is not None else ():
            panel.plot(GRID, values, color=colour, lw=0.5, alpha=0.5)
        area = np.mean([area for _, area in found])
        name = "mean of all classes" if k is None else names[k]
        mean = np.mean([values for values, _ in found], axis=0)
        panel.plot(GRID, mean, color=colour, lw=1.8, label=f"{name}: area {area:.3f}")


def roc(run, positive):
    """(true positive rate at each false positive rate of GRID, area); None: one class is absent."""
    true, scores = _of_class(run, positive)
    if true.all() or not true.any():
        return None
    false_rate, true_rate, _ = sklearn_metrics.roc_curve(true, scores)
    area = sklearn_metrics.roc_auc_score(true, scores)
    return np.interp(GRID, false_rate, true_rate), area


def precision_recall(run, positive):
    """(precision at each recall of GRID, average precision); None: the class is absent."""
    true, scores = _of_class(run, positive)
    if not true.any():
        return None
    precision, recall, _ = sklearn_metrics.precision_recall_curve(true, scores)
    # By rising recall; the last point, of no sample at all, has no precision.
    values = np.interp(GRID, recall[-2::-1], precision[-2::-1])
    return values, sklearn_metrics.average_precision_score(true, scores)


def _of_class(run, positive):
    """Which samples of a run are of a class, and how probable that is to the network."""
    return (run["true"] == positive).to_numpy(), metrics.probabilities(run)[:, positive]
