"""What it takes to train a model on a sample: seconds on a thread, and bytes."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

LONG_ENOUGH, MOST_TIMED = 0.05, 32  # seconds and samples by which a step is timed


def of_a_sample(
    model: torch.nn.Module,
    inputs: torch.Tensor,
    criterion: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    targets: torch.Tensor,
) -> dict[str, float]:
    """Return what it takes to train a model on a sample.

    Args:
        inputs: (2, ...).
        criterion: function of scores and targets that returns the loss.
        targets: (2,), of these inputs.

    Returns:
        {"seconds": of forward and backward pass on a thread; "activation_bytes": kept for the
        backward pass; "weight_bytes": of the model; "has_convolutions": whether it has weights of
        four dimensions}
    """
    model.train()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = _seconds_of_a_sample(model, inputs, criterion, targets)
    finally:
        torch.set_num_threads(threads)
    return {
        "seconds": seconds,
        "activation_bytes": _activation_bytes(model, inputs) / len(inputs),
        "weight_bytes": sum(parameter.nbytes for parameter in model.parameters()),
        "has_convolutions": any(parameter.ndim == 4 for parameter in model.parameters()),
    }


def _seconds_of_a_sample(
    model: torch.nn.Module,
    inputs: torch.Tensor,
    criterion: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    targets: torch.Tensor,
) -> float:
    """Time a step of as many samples, MOST_TIMED at most, as take LONG_ENOUGH."""
    while True:
        criterion(model(inputs).float(), targets).backward()  # the first time takes longer
        began = time.perf_counter()
        criterion(model(inputs).float(), targets).backward()
        seconds = time.perf_counter() - began
        if seconds > LONG_ENOUGH or len(inputs) >= MOST_TIMED:
            return seconds / len(inputs)
        inputs, targets = (
            values.repeat(4, *[1] * (values.ndim - 1)) for values in (inputs, targets)
        )


def _activation_bytes(model: torch.nn.Module, inputs: torch.Tensor) -> int:
    activations = {}
    weights = {tensor.untyped_storage().data_ptr() for tensor in model.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in weights:
            activations[memory.data_ptr()] = memory.nbytes()
        return tensor.detach()  # the tensor itself would be in a cycle that Python cannot see

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(inputs)
    return sum(activations.values())
