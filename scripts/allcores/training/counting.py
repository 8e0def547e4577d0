"""Count what a model computes and keeps in a forward pass, to expect how long and large it is."""

import torch
from torch.utils.flop_counter import FlopCounterMode


def counted(model, inputs):
    """What a forward pass of a model in training takes.

    Args:
        inputs: (N, ...).

    Returns:
        {"multiply_adds": per sample, of convolutions and products of matrices; "activation_bytes":
        per sample, kept for the backward pass; "weight_bytes": of the model}
    """
    kept = {}
    own = {tensor.untyped_storage().data_ptr() for tensor in model.parameters()}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    model.train()
    with (
        FlopCounterMode(display=False) as flops,
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        scores = model(inputs)  # held, so that no storage is used twice
    return {
        "multiply_adds": flops.get_total_flops() / 2 / len(scores),
        "activation_bytes": sum(kept.values()) / len(scores),
        "weight_bytes": sum(parameter.nbytes for parameter in model.parameters()),
    }
