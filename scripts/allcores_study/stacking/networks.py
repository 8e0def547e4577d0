"""Small networks of one shape, stacked: each operation computes all of them at once.

A network of a few hundred weights computes for a fifth of the time that Python and torch take to
call each other. In a stack, the K networks share the calls: their weights have a leading dimension,
and a linear layer is one batched product. Results do not depend, bit for bit, on how many networks
share a stack.

Shapes: K networks, B samples of each, F features.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from allcores_study.stacking import purity

# Modules that treat every element separately.
ELEMENTWISE = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Tanh, nn.Sigmoid, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.Softplus, nn.Softsign),
    nn.Identity,
)
FUNCTIONS = {
    *(operator.add, operator.sub, operator.mul, torch.add, torch.sub, torch.mul),
    *(torch.relu, torch.tanh, torch.sigmoid, F.relu, F.tanh, F.sigmoid, F.gelu, F.silu, F.elu),
    *(F.leaky_relu, F.relu6, F.softplus, F.mish, F.selu),
}
LINE = 16  # float32 numbers of a cache line
# A multiple of what torch's kernels compute at a time; they round the remainder differently.
ROWS = 32
METHODS = {"relu", "tanh", "sigmoid", "add", "sub", "mul"}
# A float64 gradient below this share of the largest one is 0 up to rounding.
VANISHING = 1e-11


def padded(count: int, step: int = LINE) -> int:
    """Return the next multiple of a number."""
    return -(-count // step) * step


def _places(shape: torch.Size) -> int:
    """Return how many numbers a parameter takes in a row of weights."""
    return shape[0] * padded(shape[1]) if len(shape) > 1 else shape.numel()


def traced(model: nn.Module) -> fx.GraphModule:
    """Return the torch.fx.GraphModule of a model that can be stacked, in training mode.

    Raises:
        ValueError: it cannot be; the message names the part.
    """
    if problem := purity.impurity(model, {*FUNCTIONS, torch.flatten}, {*METHODS, "flatten"}):
        raise ValueError(problem)
    model.train()
    try:
        graph = fx.symbolic_trace(model)
    except Exception as error:
        # Whatever forward() raises when it gets something that is not a tensor yet.
        raise ValueError(f"its forward() cannot be traced: {error}") from None
    for node in graph.graph.nodes:
        if problem := _problem(graph, node):
            raise ValueError(problem)
    _refuse_unusual_weights(model, graph)
    return graph


def _refuse_unusual_weights(model: nn.Module, graph: fx.GraphModule) -> None:
    """Raise a ValueError if weights are shared, frozen, have hooks or are not as in the graph."""
    calls = [node.target for node in graph.graph.nodes if node.op == "call_module"]
    if len(calls) > len(set(calls)):
        raise ValueError("it calls a module twice")
    if any(value.dtype != torch.float32 for value in model.parameters()):
        raise ValueError("its weights are not float32")
    if not all(value.requires_grad for value in model.parameters()):
        raise ValueError("some of its weights are not trained")
    if any(_has_hooks(part) for part in (*model.modules(), *model.parameters())):
        raise ValueError("it has hooks")
    named = [*model.named_parameters(), *model.named_buffers()]
    names = [name for name, _ in named]
    places = {value.untyped_storage().data_ptr() for _, value in named if value.numel()}
    is_shared = len(places) < sum(value.numel() > 0 for _, value in named)
    if (
        is_shared
        or sorted(names) != sorted(model.state_dict())
        or set(names) != set(graph.state_dict())
    ):
        raise ValueError("it has weights that it shares, or does not use")


def _has_hooks(part: object) -> bool:
    """Return whether something is called besides the forward() of a module, or on a gradient."""
    of_modules = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    names = (*of_modules, "_post_accumulate_grad_hooks")
    return any(getattr(part, name, None) for name in names)


def check(model: nn.Module, shape: tuple[int, ...]) -> None:
    """Compare a step of a stack of two networks with that of each alone.

    Scores, gradients and statistics have to agree on random samples and weights.

    Args:
        model: as for traced().
        shape: shape of a sample.

    Raises:
        ValueError: they do not agree, for instance because a layer gets other shapes than expected,
            or forward() switches gradients off.
    """
    counts, width = (5, 3), 5
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        networks = [copy.deepcopy(model) for _ in counts]
        for value in (value for network in networks for value in network.parameters()):
            # In some models the last weights begin at 0, which would hide all before them.
            value.data.normal_(std=0.5)
        inputs = torch.randn(len(counts), width, *shape)
        present = torch.arange(width) < torch.tensor(counts).unsqueeze(1)
        try:
            is_same = all(_pairs_agree(networks, inputs, present, counts))
        except Exception as error:  # whatever torch raises for shapes and unused layers
            reason = str(error).partition("\n")[0]
            raise ValueError(f"it cannot be computed in a stack: {reason}") from None
    if not is_same:
        raise ValueError("a stack of it does not compute the same")


def _pairs_agree(
    networks: list[nn.Module], inputs: torch.Tensor, present: torch.Tensor, counts: tuple[int, ...]
) -> Iterator[bool]:
    """Yield, for each result of each network, whether the stack and the network alone agree.

    Args:
        inputs: (K, B, ...) float32.
        present: (K, B) bool: which of the B are samples.
        counts: how many are, for each network.
    """
    stack = Stack([copy.deepcopy(network) for network in networks])
    dropout = [torch.Generator().manual_seed(k) for k in range(len(networks))]
    scores = stack.scores(inputs, present, dropout)
    stack.differentiate(scores[present].square().sum())
    for k, (network, count) in enumerate(zip(networks, counts, strict=True)):
        torch.manual_seed(k)
        alone = network(inputs[k, :count])
        gradients = torch.autograd.grad(alone.square().sum(), list(network.parameters()))
        expected = [alone, *gradients, *network.buffers()]
        found = [scores[k, :count], *stack.gradients_of(k), *stack.buffers_of(k)]
        yield from map(_is_close, found, expected)


def _is_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether two tensors are equal up to rounding."""
    tolerance = 1e-4 * (1 + float(expected.detach().abs().max())) if expected.numel() else 0.0
    is_alike = found.shape == expected.shape
    return is_alike and torch.allclose(found, expected, rtol=0.0, atol=tolerance)


def without_gradient(model: nn.Module, shape: tuple[int, ...]) -> str | None:
    """Return the first parameter whose gradient is 0 except for rounding; None: there is none.

    A bias before batch norm is one: the norm subtracts it. Adam divides a gradient by its own size,
    so it takes whole steps by the rounding, which differs in a stack.

    Args:
        model, shape: as for check().
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = copy.deepcopy(model).double()
        for value in model.parameters():
            value.data.normal_(std=0.5)
        scores = model(torch.randn(8, *shape, dtype=torch.float64))
        gradients = torch.autograd.grad(scores.square().sum(), list(model.parameters()))
    sizes = [float(gradient.abs().max()) for gradient in gradients]
    names = [name for name, _ in model.named_parameters()]
    pairs = zip(names, sizes, strict=True)
    return next((name for name, size in pairs if 0 < size < VANISHING * max(sizes)), None)


def _problem(graph: fx.GraphModule, node: fx.Node) -> str | None:
    """Return why an operation cannot be stacked; None: it can be."""
    if node.op in ("placeholder", "output"):
        return None
    if node.op == "call_module":
        assert isinstance(node.target, str)
        module = graph.get_submodule(node.target)
        known = (*ELEMENTWISE, nn.Flatten, nn.Linear, nn.Dropout, nn.LayerNorm, nn.BatchNorm1d)
        if type(module) not in known or not _has_usual_options(module):
            return f"{node.target} is a {module}"
        return None
    if node.op == "call_function" and node.target in FUNCTIONS:
        return None
    if node.op == "call_method" and node.target in METHODS:
        return None
    if node.target in (torch.flatten, "flatten") and (*node.args[1:], *node.kwargs.values()) == (
        1,
    ):
        return None
    return f"it calls {getattr(node.target, '__name__', node.target)}"


def _has_usual_options(module: nn.Module) -> bool:
    if isinstance(module, nn.Flatten):
        return (module.start_dim, module.end_dim) == (1, -1)
    if isinstance(module, nn.LayerNorm):
        return len(module.normalized_shape) == 1
    if isinstance(module, nn.BatchNorm1d):
        return module.affine and module.track_running_stats and module.momentum is not None
    return not getattr(module, "inplace", False) or isinstance(module, nn.ReLU)


class Stack(fx.Interpreter):
    """K networks of one shape.

    Args:
        models: the networks, for which traced() finds the same graph.

    Attributes:
        weights, gradients: (K, n) float32 each, all trainable weights of a network in a row. Each
            parameter begins at a cache line, because the order of sums in products may depend on
            the address.
        buffers: name -> (K, ...), the statistics of batch norm.
    """

    present: torch.Tensor
    dropout: Sequence[torch.Generator]

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__(traced(models[0]))
        self.names = list(models[0].state_dict())
        named = [dict(model.named_parameters()) for model in models]
        self.shapes = {name: value.shape for name, value in named[0].items()}
        length = sum(padded(_places(shape)) for shape in self.shapes.values())
        self.weights = torch.zeros(len(models), length)
        self.gradients = torch.zeros(len(models), length)
        self.parameters = self._views(self.weights)
        for name, values in self.parameters.items():
            given = torch.stack([one[name].detach() for one in named])
            values[..., : given.shape[-1]] = given
        for values in self.parameters.values():
            values.requires_grad_()
        self._of_parameters = list(self._views(self.gradients).values())
        buffers = [dict(model.named_buffers()) for model in models]
        self.buffers = {name: torch.stack([one[name] for one in buffers]) for name in buffers[0]}

    def _views(self, vectors: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return name of each parameter -> its part of (K, n) vectors.

        A part is (K, F), or (K, out, in), where `in` is padded to whole cache lines by weights that
        are 0 and stay so.
        """
        views, start = {}, 0
        for name, shape in self.shapes.items():
            part = vectors[:, start : start + _places(shape)]
            views[name] = part.unflatten(1, (shape[0], -1)) if len(shape) > 1 else part
            start += padded(_places(shape))
        return views

    def scores(
        self,
        inputs: torch.Tensor,
        present: torch.Tensor | None = None,
        dropout: Sequence[torch.Generator] | None = None,
    ) -> torch.Tensor:
        """Return the networks' scores, (K, B, outputs).

        Args:
            inputs: (K, B, ...) float32.
            present: (K, B) bool, in training: which of the B are samples; the rest fills up a short
                batch. None: in evaluation.
            dropout: in training: a generator for each network.
        """
        self.present, self.dropout = present, dropout  # type: ignore[assignment]
        if present is not None:
            self.counts = present.sum(dim=1).tolist()
        return self.run(inputs)

    def differentiate(self, loss: torch.Tensor) -> None:
        """Set the gradients to those of the sum of the networks' losses."""
        found = torch.autograd.grad(loss, list(self.parameters.values()))
        for gradient, value in zip(self._of_parameters, found, strict=True):
            gradient.copy_(value)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module, (inputs,) = self.fetch_attr(target), args
        if isinstance(module, ELEMENTWISE):
            return module(inputs)
        if isinstance(module, nn.Flatten):
            return inputs.flatten(2)
        return getattr(self, f"_{type(module).__name__.lower()}")(target, module, inputs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0].flatten(2) if target is torch.flatten else target(*args, **kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target == "flatten":
            return args[0].flatten(2)
        return super().call_method(target, args, kwargs)

    def gradients_of(self, number: int) -> list[torch.Tensor]:
        """Return the gradients of a network, in the order of its parameters."""
        return [
            gradient[number][..., : shape[-1]] if shape else gradient[number].reshape(())
            for gradient, shape in zip(self._of_parameters, self.shapes.values(), strict=True)
        ]

    def buffers_of(self, number: int) -> list[torch.Tensor]:
        """Return the buffers of a network, in their order."""
        return [values[number] for values in self.buffers.values()]

    def _parameter(self, target: str, name: str) -> Any:
        """Return a vector as (K, 1, F), a matrix as (K, out, in); None: the module has none."""
        value = self.parameters.get(f"{target}.{name}")
        return value.unsqueeze(1) if value is not None and value.dim() == 2 else value

    def _linear(self, target: str, module: nn.Linear, inputs: torch.Tensor) -> torch.Tensor:
        _expect_features(module.in_features, inputs)
        weight, bias = (self._parameter(target, name) for name in ("weight", "bias"))
        # Padded, so that the product that is each network's weight gradient begins at a cache line.
        inputs = F.pad(inputs, (0, weight.shape[2] - inputs.shape[2]))
        if bias is None:
            return torch.bmm(inputs, weight.transpose(1, 2))
        return torch.baddbmm(bias, inputs, weight.transpose(1, 2))

    def _dropout(self, target: str, module: nn.Dropout, inputs: torch.Tensor) -> torch.Tensor:
        if self.present is None or not module.p:
            return inputs
        # In the shape of the batch, as torch draws for a single network.
        keep = torch.zeros_like(inputs)
        for mine, count, generator in zip(keep, self.counts, self.dropout, strict=True):
            if count:
                drawn = torch.empty((count, *mine.shape[1:])).bernoulli_(
                    1 - module.p, generator=generator
                )
                mine[:count] = drawn.div_(1 - module.p)
        return inputs * keep

    def _layernorm(self, target: str, module: nn.LayerNorm, inputs: torch.Tensor) -> torch.Tensor:
        _expect_features(*module.normalized_shape, inputs)  # type: ignore[call-arg, arg-type]
        outputs = F.layer_norm(inputs, module.normalized_shape, eps=module.eps)
        weight, bias = (self._parameter(target, name) for name in ("weight", "bias"))
        outputs = outputs if weight is None else outputs * weight
        return outputs if bias is None else outputs + bias

    def _batchnorm1d(
        self, target: str, module: nn.BatchNorm1d, inputs: torch.Tensor
    ) -> torch.Tensor:
        _expect_features(module.num_features, inputs)
        mean, variance = (self.buffers[f"{target}.running_{name}"] for name in ("mean", "var"))
        mean, variance = mean.unsqueeze(1), variance.unsqueeze(1)
        if self.present is not None:
            mean, variance = self._statistics(target, module, inputs)
        outputs = (inputs - mean) / (variance + module.eps).sqrt()
        return outputs * self._parameter(target, "weight") + self._parameter(target, "bias")

    def _statistics(
        self, target: str, module: nn.BatchNorm1d, inputs: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return each batch's mean and variance, (K, 1, F) each, and update the running ones."""
        is_sample = self.present.unsqueeze(2)
        count = is_sample.sum(dim=1, keepdim=True).clamp(min=1)
        mean = (inputs * is_sample).sum(dim=1, keepdim=True) / count
        variance = ((inputs - mean).square() * is_sample).sum(dim=1, keepdim=True) / count
        takes_part = self.present.any(dim=1)
        with torch.no_grad():
            unbiased = variance * count / (count - 1).clamp(min=1)
            for name, value in (("mean", mean), ("var", unbiased)):
                running = self.buffers[f"{target}.running_{name}"]
                rate = module.momentum * takes_part.unsqueeze(1)  # type: ignore[operator]
                running.lerp_(value.squeeze(1), rate.to(running.dtype))
            self.buffers[f"{target}.num_batches_tracked"] += takes_part
        return mean, variance

    def state_dict(
        self, number: int, weights: torch.Tensor, buffers: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Return the state_dict of a network.

        Args:
            weights, buffers: like the attributes of these names.
        """
        values = self._views(weights[number : number + 1]) | {
            name: values[number : number + 1] for name, values in buffers.items()
        }
        state = {}
        for name in self.names:
            shape, value = self.shapes.get(name), values[name][0]
            state[name] = (value if shape is None else value[..., : shape[-1]]).clone()
        return state


def _expect_features(count: int, inputs: torch.Tensor) -> None:
    """Raise a ValueError unless the inputs of a layer are (K, B, count)."""
    if inputs.dim() != 3 or inputs.shape[2] != count:
        raise ValueError(f"a layer for {count} features gets {tuple(inputs.shape[2:])}")
