"""A number for each sample."""

import numpy as np

from allcores.tasks.base import Task

TARGETS = "numbers"
LOSS = "MSELoss"
LOSSES = ("HuberLoss", "L1Loss", "MSELoss", "SmoothL1Loss")
WEIGHTED = ()
METRICS = ("r2", "rmse", "mae")
IS_STRATIFIED = False
# Targets up to LARGEST can be squared and added up in float64, which holds integers up to EXACT.
LARGEST, EXACT = 1e100, 2**53


class Regression(Task):
    """Stored targets are float64; for training they are scaled to mean 0 and spread 1."""

    MEASURES = ("r2", "rmse", "mae")

    def checked(self, targets):
        _refuse_unfit(np.asarray(targets))
        return np.asarray(targets, np.float64)

    def scaling(self, targets):
        return float(targets.mean()), float(targets.std()) or 1.0

    def scaled(self, targets, scaling):
        return ((targets - scaling.centre) / scaling.spread).astype(np.float32)

    def loss(self, name, make, options, targets):
        loss = make(**options)
        return lambda scores, targets: loss(scores.squeeze(1), targets)

    def loss_of_each(self, name, make, options, targets):
        each = make(**options, reduction="none")
        return lambda scores, targets: each(scores.squeeze(2), targets)

    def predictions(self, scores, scaling):
        """`predicted`, float64, in the unit of the targets."""
        return {"predicted": self.answers(scores, scaling)[:, 0]}

    def measured(self, true, predicted):
        """{"r2": coefficient of determination, 1 at best; None if the true values are all equal,
        "rmse": root of the mean squared error, "mae": mean absolute error}"""
        error, spread = true - predicted, np.sum((true - true.mean()) ** 2)
        return {
            # Rounding alone could leave a spread of equal numbers.
            "r2": float(1 - np.sum(error**2) / spread) if np.ptp(true) and spread else None,
            "rmse": float(np.sqrt(np.mean(error**2))),
            "mae": float(np.mean(np.abs(error))),
        }

    def in_words(self, measures):
        return "R2 undefined" if measures["r2"] is None else f"R2 {measures['r2']:.4f}"

    def answers(self, scores, scaling):
        """Numbers in the unit of the targets, float64."""
        return scores.astype(np.float64) * scaling.spread + scaling.centre

    def told(self, answers, true, classes):
        columns = {"predicted": answers[:, 0]}
        if true is None:
            return columns, ""
        measures = self.measured(true, answers[:, 0])
        errors = f"RMSE {measures['rmse']:.4g}, MAE {measures['mae']:.4g}"
        return columns | {"true": true}, f"{self.in_words(measures)}, {errors}"

    def examples(self, count):
        import torch

        return torch.randn(count)

    def stored_examples(self, count):
        return np.random.default_rng(0).random(count)


def _refuse_unfit(targets):
    """Raise a ValueError if float64 cannot hold the targets, or the sum of their squares."""
    if len(targets) < 2:
        return
    least, most = targets.min(), targets.max()
    if targets.dtype.kind in "iu" and max(abs(int(least)), abs(int(most))) > EXACT:
        reason = "which float64 cannot hold exactly; expected a common offset to be subtracted"
    elif max(abs(float(least)), abs(float(most))) > LARGEST:
        reason = f"whose squares are too large; expected numbers below {LARGEST:g}"
    elif float(most) - float(least) < 1 / LARGEST:
        reason = "which do not differ, or by too little; expected a smaller unit"
    else:
        return
    raise ValueError(f"the targets are numbers from {least:.12g} to {most:.12g}, {reason}")
