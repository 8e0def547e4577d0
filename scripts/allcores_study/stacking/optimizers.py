"""Updates of stacked networks: torch's rules, with a learning rate and options for each network.

Each function updates (K, n) weights of K networks. Rows are the networks that take part in a step;
the others do not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from allcores.parallel.optimizers import LEAST_NORM

if TYPE_CHECKING:
    from allcores_study.config.run import Run
    from allcores_study.stacking.networks import Stack

DEFAULTS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.0, "nesterov": False},
    "Adam": {"betas": (0.9, 0.999), "eps": 1e-8},
    "AdamW": {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01},
}


def problem(run: Any) -> str | None:
    """Return why the optimizer of a Run cannot be stacked; None: it can be."""
    if run.optimizer.name not in DEFAULTS:
        return f"its optimizer is {run.optimizer.name}"
    known = {"lr", "weight_decay", *DEFAULTS[run.optimizer.name]}
    others = sorted(run.optimizer.options.keys() - known)
    if others:
        return f"its optimizer has the option {others[0]}"
    # The weights that pad the rows have no gradient, so they would become 0 / 0.
    return "its optimizer has eps 0" if run.optimizer.options.get("eps") == 0 else None


class StackedOptimizer:
    """torch.optim.SGD, Adam or AdamW for each of K networks.

    Args:
        runs: the Runs of the networks, with one optimizer and any options.
    """

    def __init__(self, runs: Sequence[Run], stack: Stack) -> None:
        assert runs[0].optimizer is not None
        self.stack, self.name = stack, runs[0].optimizer.name
        options = [
            {"weight_decay": 0.0} | DEFAULTS[self.name] | run.optimizer.options  # type: ignore[union-attr]
            for run in runs
        ]
        self.options = {
            key: _column([one[key] for one in options])
            for key in options[0]
            if key not in ("lr", "betas")
        }
        if self.name != "SGD":
            for number, values in enumerate(zip(*(one["betas"] for one in options), strict=True)):
                self.options[f"beta{number + 1}"] = _column(values)
        self.decay = self.options.pop("weight_decay")
        self.norms = _column([run.clip_norm or torch.inf for run in runs])
        self.steps = torch.zeros(len(runs), 1, dtype=torch.float64)
        self.moments = [torch.zeros_like(stack.weights) for _ in range(1 + (self.name != "SGD"))]

    @torch.no_grad()
    def step(self, lr: torch.Tensor, rows: slice | torch.Tensor) -> None:
        """Update the weights.

        Args:
            lr: learning rate of each network, (K, 1) float64.
            rows: a slice of all networks, or the numbers of those that take part, (m,) int64.
        """
        gradients, weights = self.stack.gradients[rows], self.stack.weights[rows]
        self.steps[rows] += 1
        self._clip(gradients, rows)
        moments = [moment[rows] for moment in self.moments]
        rule = self._sgd if self.name == "SGD" else self._adam
        rule(weights, gradients, moments, lr[rows], rows)
        if not isinstance(rows, slice):
            self.stack.weights[rows] = weights
            for moment, of_rows in zip(self.moments, moments, strict=True):
                moment[rows] = of_rows

    def _clip(self, gradients: torch.Tensor, rows: slice | torch.Tensor) -> None:
        if self.norms.isinf().all():
            return
        norms = gradients.double().square().sum(dim=1, keepdim=True).sqrt()
        factors = self.norms[rows] / (norms + LEAST_NORM)
        gradients.mul_(torch.where(norms > self.norms[rows], factors, 1.0).float())

    def _sgd(
        self,
        weights: torch.Tensor,
        gradients: torch.Tensor,
        moments: list[torch.Tensor],
        lr: torch.Tensor,
        rows: slice | torch.Tensor,
    ) -> None:
        momentum, nesterov = (self.options[key][rows] for key in ("momentum", "nesterov"))
        gradients += self.decay[rows].float() * weights
        if momentum.any():
            moments[0].mul_(momentum.float()).add_(gradients)
            ahead = gradients + momentum.float() * moments[0]
            update = torch.where(nesterov.bool(), ahead, moments[0])
        else:
            update = gradients
        weights.sub_(lr.float() * update)

    def _adam(
        self,
        weights: torch.Tensor,
        gradients: torch.Tensor,
        moments: list[torch.Tensor],
        lr: torch.Tensor,
        rows: slice | torch.Tensor,
    ) -> None:
        first, second, eps = (self.options[key][rows] for key in ("beta1", "beta2", "eps"))
        if self.name == "AdamW":
            weights.mul_((1 - lr * self.decay[rows]).float())
        else:
            gradients += self.decay[rows].float() * weights
        moments[0].lerp_(gradients, (1 - first).float().expand_as(gradients))
        moments[1].mul_(second.float()).addcmul_(gradients * (1 - second).float(), gradients)
        steps = self.steps[rows]
        size = lr / (1 - first**steps)
        root = (1 - second**steps).sqrt()
        denominator = moments[1].sqrt().div_(root.float()).add_(eps.float())
        weights.sub_(moments[0].div(denominator).mul_(size.float()))


def _column(values: Iterable[float]) -> torch.Tensor:
    """Return a number for each network as (K, 1) float64."""
    return torch.tensor([[float(value)] for value in values], dtype=torch.float64)
