"""Build the model of a run, and the precision in which it computes."""

import inspect

import torch

from allcores.study import registry

MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


class ModelArguments:
    """The part of a storage.Dataset that a model is built from."""

    def __init__(self, shape, classes):
        channels, height, width = shape
        self.model_arguments = {
            "channels": channels,
            "image_size": (height, width),
            "classes": classes,
        }


def precision(run):
    """The context in which a Run's model computes: for bf16, torch's autocast."""
    return torch.autocast("cpu", torch.bfloat16, enabled=run.precision == "bf16")


def build(run, dataset):
    """The model of a Run, for the images of a Dataset, or of ModelArguments.

    Of `channels`, `image_size` and `classes` the model is passed only those that it takes by name,
    so that a module written for one dataset fits, too.

    Raises:
        ValueError: what the name stands for does not make a torch.nn.Module.
    """
    component = registry.model(run.model.name)
    make = component.load()
    taken = component.arguments or inspect.signature(make).parameters
    fitting = {name: value for name, value in dataset.model_arguments.items() if name in taken}
    model = make(**fitting, **run.model.options)
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"the model is no torch.nn.Module but {type(model).__name__}")
    _materialise(model, dataset.model_arguments)
    # Convolutions take on the format of their weights, whatever that of the images is.
    return model.to(memory_format=MEMORY_FORMATS[run.memory_format])


def _materialise(model, arguments):
    """Pass an image through lazy modules: they have no weights before, and strategies need them."""
    if any(isinstance(p, torch.nn.UninitializedParameter) for p in model.parameters()):
        model.eval()
        with torch.no_grad():
            model(torch.zeros(1, arguments["channels"], *arguments["image_size"]))
        model.train()
