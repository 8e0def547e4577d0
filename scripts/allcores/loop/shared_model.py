"""A model that the workers of allcores.run() train together, and its state in a file."""

from __future__ import annotations

import copy
import io
import pickle
import weakref
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from allcores.files import whole

if TYPE_CHECKING:
    from allcores.parallel.world import World
    from allcores.strategies.base import Strategy


class SharedModel:
    """A model that all workers train.

    Attributes:
        model: what to call; strategies may wrap the module.
        optimizer: for torch's schedulers. step() uses its settings, including the learning rate.
            Its step() and zero_grad() are those of this class.
        saved: the further values that were given to save(), if this model was resumed.
    """

    def __init__(self, strategy: Strategy, world: World, saved: dict[str, Any]) -> None:
        self.model, self.strategy = strategy.model, strategy
        self.saved, self._world = saved, world
        self._parameters = list(strategy.module.parameters())
        self._trained = self._trains()
        self._resumed = self._settings = _settings(strategy.optimizer)
        self.optimizer = _Front(self)

    def step(self) -> None:
        """Update the weights with the gradients of backward(), and clear the gradients.

        Raises:
            ValueError: weights were frozen or moved since share(); or, with servers, other
                settings of the optimizer have changed than its learning rate.
        """
        self.optimizer.step()  # schedulers count its calls

    def _step(self) -> None:
        if self.strategy.flat and self._trains() != self._trained:
            raise ValueError(
                "weights were frozen or moved since share(); freeze them, or move them by to(), "
                "before share()"
            )
        changed, settings = self._changed(), _settings(self.optimizer)
        if self._world.servers and changed.keys() - {"lr"}:
            raise ValueError(f"servers accept changes of lr only; changed: {', '.join(changed)}")
        self._settings = settings
        (group,) = self.strategy.optimizer.param_groups
        group.update(changed)
        self.strategy.collect()
        self.strategy.step(settings["lr"])
        self._world.clock.enter("compute")

    def _changed(self) -> dict[str, Any]:
        """Return the settings that have changed since the last step, by a scheduler for example."""
        settings = _settings(self.optimizer)
        return {key: settings[key] for key, old in self._settings.items() if settings[key] != old}

    def _trains(self) -> list[tuple[bool, int]]:
        """Return for each weight whether it is trained, and its address."""
        return [(weights.requires_grad, weights.data_ptr()) for weights in self._parameters]

    def restore_settings(self) -> None:
        """Reset the optimizer to its settings after share(), which a resumed run has restored.

        Call it after creating a scheduler, which sets its own learning rate.
        """
        self.optimizer.param_groups[0].update(self._resumed)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients. step() also does so."""
        self.strategy.clear()

    def accumulating(self) -> AbstractContextManager[Any]:
        """Return a context in which backward() only adds to the gradient of the next step()."""
        return self.strategy.accumulating()

    def synchronize(self) -> None:
        """Give all workers the final weights, and average the statistics of norm layers.

        Call it at the end of each epoch, and before any use of the module besides training.

        Raises:
            ValueError: the weights differ between workers, for example because the model was
                trained without the strategy or edited on one worker.
        """
        self._world.clock.enter("wait")
        self.strategy.synchronize()
        names = [name for name, _ in self.strategy.module.named_parameters()]
        sums = torch.tensor([_sum_of_bytes(weights) for weights in self._parameters])
        differs = self._world.all_reduce(sums.clone()) != self._world.workers * sums
        self._world.clock.enter("compute")
        if differs.any():
            name = names[int(differs.nonzero()[0])]
            raise ValueError(f"the weights of {name} are not the same on all workers")

    def save(self, file: str | Path, **further: Any) -> None:
        """Write the state to a file atomically. Every worker calls it, after synchronize().

        Args:
            further: what else a resumed run needs, such as the number of the next epoch.
        """
        if self._world.rank == 0:
            _check_further(further)
            with whole(file) as part:
                torch.save(self.state() | {"further": further}, part)
        self._world.clock.enter("save")
        self._world.barrier()
        self._world.clock.enter("compute")

    def state(self) -> dict[str, Any]:
        """Return what share() resumes from, as tensors and plain values; for rank 0 only."""
        # The strategy's settings, since an optimizer may count in them, but not its lr, since a
        # strategy may update with a part of lr.
        lr = self.optimizer.param_groups[0]["lr"]
        return {
            "strategy": self.strategy.state(),
            "of": type(self.strategy).__name__,
            "servers": self._world.servers,
            "optimizer": type(self.strategy.optimizer).__name__,
            "settings": _settings(self.strategy.optimizer) | self._changed() | {"lr": lr},
            "further": {},
        }


class _Front(torch.optim.Optimizer):
    """An optimizer of the module's parameters, for schedulers.

    A strategy's own optimizer may update copies of them, or parts of a vector.
    """

    def __init__(self, shared: SharedModel) -> None:
        self.shared = weakref.proxy(shared)  # a loop over folds then frees each model at once
        trained = [weights for weights in shared._parameters if weights.requires_grad]
        super().__init__(trained, dict(shared._settings))

    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._of_model()._step()
        return loss

    def _of_model(self) -> SharedModel:
        try:
            self.shared.strategy  # noqa: B018
        except ReferenceError:
            raise ReferenceError(
                "the shared model is gone; keep what share() returned while its optimizer is used"
            ) from None
        return self.shared

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether torch.amp.GradScaler, which asks for this, leaves skipping of steps to step().

        Raises:
            ValueError: each worker would skip other steps.
        """
        strategy = self._of_model().strategy
        if strategy.element_wise and strategy.world.workers > 1:
            raise ValueError(
                "torch.amp.GradScaler looks at the gradients before they are averaged, so workers "
                "would skip different steps; use bfloat16, which needs no scaler"
            )
        return False

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._of_model().zero_grad()

    def state_dict(self) -> dict[str, Any]:
        raise ValueError("the strategy has the optimizer's state: call save() of the shared model")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        raise ValueError("the strategy has the optimizer's state: call share(..., resume=FILE)")


def _sum_of_bytes(weights: Any) -> int:
    return int(weights.detach().contiguous().view(-1).view(torch.uint8).sum(dtype=torch.int64))


def _settings(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the settings of the optimizer's only group, including the learning rate."""
    (group,) = optimizer.param_groups
    return {name: value for name, value in group.items() if name not in ("params", "initial_lr")}


def _check_further(further: dict[str, Any]) -> None:
    """Raise a ValueError if values could not be loaded without running code."""
    file = io.BytesIO()
    torch.save(further, file)
    file.seek(0)
    try:
        torch.load(file, weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(
            "expected tensors, numbers, strings, and tuples, lists and dicts of them; found "
            + ", ".join(f"{name}={value!r}"[:80] for name, value in further.items())
        ) from None


def restored(
    strategy: Strategy, source: str | Path | dict[str, Any], servers: int
) -> dict[str, Any]:
    """Restore a state(), or one in a file, and return the further values in it.

    Raises:
        ValueError: it was not written by save(), or its optimizer, number of servers or strategy
            does not fit.
    """
    if isinstance(source, dict):
        saved, file = copy.deepcopy(source), "the state"  # which may be restored again
    else:
        saved, file = torch.load(source, map_location="cpu", weights_only=True), str(source)
    if not isinstance(saved, dict) or not {"further", "of"} <= saved.keys():
        raise ValueError(f"{file} was not written by save() of this version")
    of, optimizer = type(strategy).__name__, type(strategy.optimizer).__name__
    if (saved["of"], saved["optimizer"], saved["servers"]) != (of, optimizer, servers):
        raise ValueError(
            f"{file} was saved by {saved['of']}, {saved['optimizer']}, with {saved['servers']} "
            f"servers; found {of}, {optimizer}, with {servers}"
        )
    strategy.restore(saved["strategy"])
    strategy.optimizer.param_groups[0].update(saved["settings"])
    return saved["further"]


def pickled(value: Any) -> bytes:
    """Pickle a value. Of a tensor that is a view, only its own elements are stored."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        is_view = (
            type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided
        )
        if not is_view or value.untyped_storage().nbytes() <= value.nbytes:
            return NotImplemented
        copied = value.detach().clone()
        if type(value) is torch.nn.Parameter:
            copied = torch.nn.Parameter(copied, value.requires_grad)
        return copied.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
