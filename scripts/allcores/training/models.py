"""Build the model of a run, and the precision in which it computes."""

import inspect

import torch

from allcores.study import registry

MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def precision(run):
    """The context in which a Run's model computes: for bf16, torch's autocast."""
    return torch.autocast("cpu", torch.bfloat16, enabled=run.precision == "bf16")


def arguments(shape, outputs):
    """What a model may ask for by name, for samples of a shape: see build()."""
    known = {"shape": tuple(shape), "classes": outputs}
    if len(shape) > 1:
        known["channels"] = shape[0]
    if len(shape) == 3:
        known["image_size"] = tuple(shape[1:])
    return known


def build(run, shape, outputs):
    """The model of a Run.

    Of arguments() the model is passed only those that it takes by name, so that a module written
    for one dataset fits, too.

    Args:
        shape: of a sample: (C, H, W) of an image, (C, L) of a signal, (F,) of a row of a table.
        outputs: one for each class, or one for a number.

    Raises:
        ValueError: it is for samples of another kind, or makes no torch.nn.Module.
    """
    component = registry.model(run.model.name)
    make = component.load()
    taken = component.arguments or inspect.signature(make).parameters
    given = arguments(shape, outputs)
    lacking = [name for name in arguments((1, 1, 1), 1) if name in taken and name not in given]
    if lacking:
        raise ValueError(
            f"{run.model.name} takes {', '.join(lacking)}, which samples of the shape "
            f"{tuple(shape)} do not have; expected a model that takes {', '.join(given)}"
        )
    fitting = {name: value for name, value in given.items() if name in taken}
    model = make(**fitting, **run.model.options)
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError(
            "the model is compiled by TorchScript, whose weights cannot be shared out; expected "
            "the torch.nn.Module before torch.jit.script or trace"
        )
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"the model is no torch.nn.Module but {type(model).__name__}")
    _materialise(model, shape)
    # Convolutions take on the format of their weights, whatever that of the images is.
    return model.to(memory_format=MEMORY_FORMATS[run.memory_format])


def _materialise(model, shape):
    """Pass a sample through lazy modules: they have no weights before, and strategies need them."""
    if any(isinstance(p, torch.nn.UninitializedParameter) for p in model.parameters()):
        model.eval()
        with torch.no_grad():
            model(torch.zeros(1, *shape))
        model.train()
