"""Build the model of a run, and set the precision in which it computes."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from allcores_study.config import registry
from allcores_study.data.tokens import PADDING

if TYPE_CHECKING:
    from allcores_study.config.run import Run

MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def precision(run: Run) -> AbstractContextManager[Any]:
    """Return the context in which a Run's model computes: for bf16, torch's autocast."""
    return torch.autocast("cpu", torch.bfloat16) if run.precision == "bf16" else nullcontext()


def arguments(shape: Sequence[int], outputs: int, vocabulary: int | None = None) -> dict[str, Any]:
    """Return the arguments that a model may take by name for samples of a shape; see build()."""
    values = {"shape": tuple(shape), "classes": outputs}
    if vocabulary:
        values["vocabulary"] = vocabulary
    if len(shape) > 1:
        values["channels"] = shape[0]
    if len(shape) == 3:
        values["image_size"] = tuple(shape[1:])
    return values


def build(
    run: Run, shape: Sequence[int], outputs: int, vocabulary: int | None = None
) -> torch.nn.Module:
    """Return the model of a Run.

    The model gets only those of arguments() that it takes by name, so a module that was written for
    a single dataset also fits.

    Args:
        shape: shape of a sample: (C, H, W) for an image, (C, L) for a signal, (F,) for a table's
            row.
        outputs: number of outputs: one per class, or 1 for a number.
        vocabulary: number of tokens; None: samples are not sequences of tokens.

    Raises:
        ValueError: the model is for samples of another shape, or is not a torch.nn.Module that can
            be trained.
    """
    if run.is_estimator:
        return importlib.import_module(registry.trainer(run)).build(run, outputs)
    make = registry.model(run.model.name).load()
    if isinstance(make, torch.nn.Module):
        raise ValueError(
            f"{run.model.name} is a network that already exists, so all runs would train the same "
            f"one; expected its class, {type(make).__name__}, or a function that makes it"
        )
    given = supplied(run, shape, outputs, vocabulary)
    try:
        model = make(**given, **run.model.options)
    except Exception as error:
        if given and ":" in run.model.name:
            error.add_note(f"{_in_words(given)}, which keys of these names in its entry override")
        raise
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError(
            "the model is compiled by TorchScript, whose weights cannot be distributed; expected "
            "the torch.nn.Module before torch.jit.script or trace"
        )
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"the model is not a torch.nn.Module but {type(model).__name__}")
    _give_lengths(model)
    _materialise(model, torch.zeros(1, *shape, dtype=torch.int64 if vocabulary else None))
    for parameter in model.parameters():
        if torch.empty_like(parameter).stride() != parameter.stride():
            # A view: optimizers and vectors of all weights would write into the larger tensor.
            parameter.data = parameter.detach().clone(memory_format=torch.contiguous_format)
    # Convolutions compute in the format of their weights, whatever the format of the images.
    memory_format = MEMORY_FORMATS[run.memory_format]
    if memory_format == torch.channels_last and len(shape) == 4:  # volumes
        memory_format = torch.channels_last_3d
    return model.to(memory_format=memory_format)  # type: ignore[call-overload]


def supplied(
    run: Run, shape: Sequence[int], outputs: int, vocabulary: int | None = None
) -> dict[str, Any]:
    """Return the arguments() that a model gets: those it takes by name, unless its entry sets them.

    The parameters are those of build().

    Raises:
        ValueError: it takes some that samples of this shape do not have.
    """
    component = registry.model(run.model.name)
    parameters = component.arguments or inspect.signature(component.load()).parameters
    wanted = set(parameters) - set(run.model.options)
    available = arguments(shape, outputs, vocabulary)
    unknown = [name for name in arguments((1, 1, 1), 1, 1) if name in wanted - set(available)]
    signature = inspect.signature(component.load()).parameters if unknown else {}
    has_default = [name for name, one in signature.items() if one.default is not one.empty]
    if missing := [name for name in unknown if name not in has_default]:
        in_entry = f", or `{missing[0]}: ...` in its entry" if ":" in run.model.name else ""
        raise ValueError(
            f"{run.model.name} takes {', '.join(missing)}, which samples of the shape "
            f"{tuple(shape)} do not have; expected a model that takes {', '.join(available)}"
            + in_entry
        )
    return {name: value for name, value in available.items() if name in wanted}


def _in_words(given: dict[str, Any]) -> str:
    values = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return f"the data gave it {values}"


def note_on_supplied(
    run: Run, shape: Sequence[int], outputs: int, vocabulary: int | None = None
) -> str:
    """Return a sentence on what the data gave a model of the user's; "": nothing.

    The parameters are those of build().
    """
    if run.is_estimator or ":" not in run.model.name:
        return ""
    given = supplied(run, shape, outputs, vocabulary)
    return f"{run.model.name}: {_in_words(given)}" if given else ""


def _give_lengths(model: torch.nn.Module) -> None:
    """Have a model whose forward() takes `lengths` or `mask` get them.

    It then also gets no token numbers beyond the longest sequence of a batch. `lengths` is (n,)
    int64, at least 1; `mask` is (n, L) bool, True for tokens.
    """
    known = {"lengths", "mask"} & set(inspect.signature(model.forward).parameters)

    def add(
        model: torch.nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[torch.Tensor], dict[str, Any]] | None:
        if not arguments or arguments[0].is_floating_point():
            return None
        (numbers,) = arguments
        places = torch.arange(1, numbers.shape[1] + 1, device=numbers.device)
        lengths = torch.where(numbers != PADDING, places, 0).amax(dim=1).clamp(min=1)
        # An exported graph has no sizes that depend on values.
        width = numbers.shape[1] if torch.compiler.is_exporting() else int(lengths.max())
        given = {"lengths": lengths, "mask": places[:width] <= lengths[:, None]}
        return (numbers[:, :width],), options | {name: given[name] for name in known}

    if known:
        # A hook, because a module around the model would change the names of its weights.
        model.register_forward_pre_hook(add, with_kwargs=True)


def _materialise(model: torch.nn.Module, sample: torch.Tensor) -> None:
    """Pass a sample through lazy modules to create their weights, which strategies need."""
    if any(
        isinstance(parameter, torch.nn.UninitializedParameter) for parameter in model.parameters()
    ):
        model.eval()
        with torch.no_grad():
            model(sample)
        model.train()
