"""One number or several for each sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from allcores_study.tasks.base import Task, described, of_samples

if TYPE_CHECKING:
    from torch import Tensor

TARGETS = "numbers"
LOSS = "MSELoss"
LOSSES = ("HuberLoss", "L1Loss", "MSELoss", "SmoothL1Loss")
WEIGHTED = ()
METRICS = ("r2", "rmse", "mae")
IS_SCALED = True
STRATIFIED = ""
# Targets up to LARGEST can be squared and added up in float64, which holds integers up to EXACT.
LARGEST, EXACT = 1e100, 2**53


class Regression(Task):
    """Stored targets are float64, (N,), or (N, outputs) for several numbers.

    For training, each is scaled to mean 0 and spread 1.
    """

    @property
    def measures(self) -> tuple[str, ...]:  # type: ignore[override]
        return METRICS if self.outputs == 1 else (*METRICS, "of_each")

    @classmethod
    def of_targets(cls, targets: np.ndarray) -> Regression:
        is_several = targets.ndim == 2 and targets.shape[1] > 1
        if not (targets.ndim == 1 or is_several) or targets.dtype.kind not in "fiu":
            raise ValueError(
                f"expected (N,) numbers, or (N, T) of T > 1 each; found {described(targets)}"
            )
        return cls(targets.shape[1] if is_several else 1)

    @property
    def usual_names(self) -> list[str] | None:
        return [f"number {at + 1}" for at in range(self.outputs)] if self.outputs > 1 else None

    def checked(self, targets: np.ndarray, are_all: bool = True) -> np.ndarray:
        targets = np.asarray(targets)
        expected = (len(targets),) if self.outputs == 1 else (len(targets), self.outputs)
        if targets.shape != expected:
            raise ValueError(f"expected targets of the shape {expected}; found {targets.shape}")
        invalid = np.argwhere(~np.isfinite(targets))
        if len(invalid):
            place = tuple(invalid[0].tolist())
            where = ", ".join(map(str, place))
            raise ValueError(f"[{where}] is {targets[place]}; expected finite numbers")
        for column in targets.reshape(len(targets), -1).T if are_all else ():
            _refuse_unfit(column)
        return np.asarray(targets, np.float64)

    def scaling(self, targets: np.ndarray) -> tuple[float | np.ndarray, float | np.ndarray]:
        # The standard deviation of equal numbers may be a rounding error.
        spread = np.where(np.ptp(targets, axis=0) > 0, targets.std(axis=0), 1.0)
        centre = targets.mean(axis=0)
        return (float(centre), float(spread)) if self.outputs == 1 else (centre, spread)

    def scaled(self, targets: np.ndarray, scaling: Any) -> np.ndarray:
        return ((targets - scaling.centre) / scaling.spread).astype(np.float32)

    def loss(
        self, name: str, make: Callable[..., Any], options: dict[str, Any], targets: np.ndarray
    ) -> Callable[[Tensor, Tensor], Tensor]:
        loss = make(**options)
        return lambda scores, targets: loss(scores.reshape(targets.shape), targets)

    def loss_of_each(
        self,
        name: str,
        make: Callable[..., Any],
        options: dict[str, Any],
        targets: list[np.ndarray],
    ) -> Callable[[Tensor, Tensor], Tensor]:
        each = make(**options, reduction="none")

        return lambda scores, targets: of_samples(each(scores.reshape(targets.shape), targets))

    def predictions(self, scores: np.ndarray, scaling: Any) -> dict[str, Any]:
        """Return `predicted`, float64, in the unit and the shape of the targets."""
        import torch

        answers = self.answers(torch.from_numpy(scores), scaling).numpy()
        return {"predicted": answers[:, 0] if self.outputs == 1 else answers}

    def measured(self, true: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
        """Return {"r2", "rmse", "mae"}; for several numbers their means, and "of_each", a list.

        "r2" is the coefficient of determination, 1 at best, or None if the true values are all
        equal; "rmse" is the root of the mean squared error, "mae" the mean absolute error.
        """
        if self.outputs == 1:
            return _measured(true, predicted)
        each = [_measured(*columns) for columns in zip(true.T, predicted.T, strict=True)]
        means = {
            name: None
            if any(measures[name] is None for measures in each)
            else float(np.mean([measures[name] for measures in each]))
            for name in METRICS
        }
        return means | {"of_each": each}

    def in_words(self, measures: dict[str, Any]) -> str:
        mean = "" if self.outputs == 1 else "mean "
        return f"{mean}R2 " + ("undefined" if measures["r2"] is None else f"{measures['r2']:.4f}")

    def answers(self, scores: Tensor, scaling: Any) -> Tensor:
        """Return numbers in the unit of the targets, float64."""
        import torch

        given = scaling.spread, scaling.centre
        spread, centre = (torch.as_tensor(value, dtype=torch.float64) for value in given)
        return scores.double() * spread + centre

    def columns(self, answers: np.ndarray, names: list[str] | None) -> dict[str, np.ndarray]:
        if self.outputs == 1:
            return {"predicted": answers[:, 0]}
        assert names is not None
        return {f"predicted_{name}": answers[:, at] for at, name in enumerate(names)}

    def stored_examples(self, count: int, shape: Sequence[int]) -> np.ndarray:
        size = count if self.outputs == 1 else (count, self.outputs)
        return np.random.default_rng(0).random(size)


def _measured(true: np.ndarray, predicted: np.ndarray) -> dict[str, float | None]:
    error, spread = true - predicted, np.sum((true - true.mean()) ** 2)
    return {
        # Rounding alone could give equal numbers a spread.
        "r2": float(1 - np.sum(error**2) / spread) if np.ptp(true) and spread else None,
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.mean(np.abs(error))),
    }


def _refuse_unfit(targets: np.ndarray) -> None:
    """Raise a ValueError if float64 cannot hold the targets, or the sum of their squares."""
    if len(targets) < 2:
        return
    least, most = targets.min(), targets.max()
    if targets.dtype.kind in "iu" and max(abs(int(least)), abs(int(most))) > EXACT:
        reason = "which float64 cannot hold exactly; subtract a common offset"
    elif max(abs(float(least)), abs(float(most))) > LARGEST:
        reason = f"whose squares are too large; expected numbers below {LARGEST:g}"
    elif float(most) - float(least) < 1 / LARGEST:
        reason = "which differ too little or not at all; use a smaller unit"
    else:
        return
    raise ValueError(f"the targets are numbers from {least:.12g} to {most:.12g}, {reason}")
