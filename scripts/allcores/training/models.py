"""Build the model of a run, and the precision in which it computes."""

import importlib
import inspect
from contextlib import nullcontext

import torch

from allcores.study import registry

MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def precision(run):
    """The context in which a Run's model computes: for bf16, torch's autocast."""
    return torch.autocast("cpu", torch.bfloat16) if run.precision == "bf16" else nullcontext()


def arguments(shape, outputs):
    """The arguments that a model may take by name, for samples of a shape: see build()."""
    values = {"shape": tuple(shape), "classes": outputs}
    if len(shape) > 1:
        values["channels"] = shape[0]
    if len(shape) == 3:
        values["image_size"] = tuple(shape[1:])
    return values


def build(run, shape, outputs):
    """The model of a Run.

    The model is passed only those of arguments() that it takes by name, so that a module written
    for one dataset fits, too.

    Args:
        shape: of a sample: (C, H, W) of an image, (C, L) of a signal, (F,) of a row of a table.
        outputs: number of outputs: one per class, or 1 for a number.

    Raises:
        ValueError: the model is for samples of another shape, or is not a torch.nn.Module that can
            be trained.
    """
    if run.is_estimator:
        return importlib.import_module(registry.trainer(run)).build(run, outputs)
    component = registry.model(run.model.name)
    make = component.load()
    parameters = component.arguments or inspect.signature(make).parameters
    available = arguments(shape, outputs)
    missing = [
        name for name in arguments((1, 1, 1), 1) if name in parameters and name not in available
    ]
    if missing:
        raise ValueError(
            f"{run.model.name} takes {', '.join(missing)}, which samples of the shape "
            f"{tuple(shape)} do not have; expected a model that takes {', '.join(available)}"
        )
    kwargs = {name: value for name, value in available.items() if name in parameters}
    model = make(**kwargs, **run.model.options)
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError(
            "the model is compiled by TorchScript, whose weights cannot be shared out; expected "
            "the torch.nn.Module before torch.jit.script or trace"
        )
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"the model is not a torch.nn.Module but {type(model).__name__}")
    _materialise(model, shape)
    for parameter in model.parameters():
        if torch.empty_like(parameter).stride() != parameter.stride():
            # A part of a larger tensor, in which optimizers and vectors of all weights would write.
            parameter.data = parameter.detach().clone(memory_format=torch.contiguous_format)
    # Convolutions compute in the format of their weights, whatever the format of the images.
    return model.to(memory_format=MEMORY_FORMATS[run.memory_format])


def _materialise(model, shape):
    """Pass a sample through lazy modules, which get their weights by it: strategies need them."""
    if any(
        isinstance(parameter, torch.nn.UninitializedParameter) for parameter in model.parameters()
    ):
        model.eval()
        with torch.no_grad():
            model(torch.zeros(1, *shape))
        model.train()
