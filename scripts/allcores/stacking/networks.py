"""Small networks of one shape, stacked: each operation computes all of them at once.

A network of some hundred weights computes for a fifth of the time that Python and torch take to
call each other. In a stack the K networks share the calls: their weights have a dimension in
front, and a linear layer is one batched product. How many stand together decides no bit of any.

Shapes: K networks, B samples of each, F features.
"""

import copy
import operator

import torch
import torch.nn.functional as F
from torch import fx, nn

# Modules that treat every element alone.
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
METHODS = {"relu", "tanh", "sigmoid", "add", "sub", "mul"}


def padded(count):
    """The next multiple of LINE."""
    return -(-count // LINE) * LINE


def _places(shape):
    """How many numbers a parameter takes in a row of weights."""
    return shape[0] * padded(shape[1]) if len(shape) > 1 else shape.numel()


def traced(model):
    """The torch.fx.GraphModule of a model that can be stacked.

    Raises:
        ValueError: it cannot be; the message says which part.
    """
    before = _attributes(model)
    try:
        graph, again = fx.symbolic_trace(model), fx.symbolic_trace(model)
    except Exception as error:
        # Whatever a module's forward() does with what is no tensor yet.
        raise ValueError(f"its forward() cannot be traced: {error}") from None
    if _attributes(model) != before or graph.code != again.code:
        raise ValueError("its forward() changes attributes, or does not compute the same each time")
    for node in graph.graph.nodes:
        if problem := _problem(graph, node):
            raise ValueError(problem)
    calls = [node.target for node in graph.graph.nodes if node.op == "call_module"]
    if len(calls) > len(set(calls)):
        raise ValueError("it calls a module twice")
    if any(value.dtype != torch.float32 for value in model.parameters()):
        raise ValueError("its weights are not float32")
    if not all(value.requires_grad for value in model.parameters()):
        raise ValueError("some of its weights are not trained")
    if any(_has_hooks(part) for part in (*model.modules(), *model.parameters())):
        raise ValueError("it has hooks")
    names = [name for name, _ in (*model.named_parameters(), *model.named_buffers())]
    if sorted(names) != sorted(model.state_dict()) or set(names) != set(graph.state_dict()):
        raise ValueError("it has weights that it shares, or does not use")
    return graph


def _has_hooks(part):
    """Whether something is called beside the forward() of a module, or on a gradient."""
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(part, name, None) for name in names)


def check(model, shape):
    """Compare a stack of a copy of a model with the model itself, on random samples.

    Args:
        shape: of a sample.

    Raises:
        ValueError: they do not compute the same, as where a layer gets other shapes than expected.
    """
    alone = copy.deepcopy(model)
    inputs, random = torch.randn(2, *shape), torch.default_generator.get_state()
    with torch.no_grad():
        try:
            stack = Stack([copy.deepcopy(model)])
            present, dropout = torch.ones(1, 2, dtype=torch.bool), torch.Generator()
            dropout.set_state(random)
            stacked = stack.scores(inputs.unsqueeze(0), present, [dropout]).squeeze(0)
        except Exception as error:  # of shapes, whatever torch makes of them
            raise ValueError(f"it cannot be computed in a stack: {error}") from None
        torch.default_generator.set_state(random)
        scores = alone(inputs)
    if scores.shape != stacked.shape or not torch.allclose(scores, stacked, atol=1e-4):
        raise ValueError("a stack of it does not compute the same")


def _attributes(model):
    """What forward() may count or remember, which a traced graph would not do again."""
    return [
        {name: repr(value) for name, value in vars(module).items() if not name.startswith("_")}
        for module in model.modules()
    ]


def _problem(graph, node):
    """Why an operation cannot be stacked, in words; None: it can be."""
    if node.op in ("placeholder", "output"):
        return None
    if node.op == "call_module":
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


def _has_usual_options(module):
    if isinstance(module, nn.Flatten):
        return (module.start_dim, module.end_dim) == (1, -1)
    if isinstance(module, nn.LayerNorm):
        return len(module.normalized_shape) == 1
    if isinstance(module, nn.BatchNorm1d):
        return module.affine and module.track_running_stats and module.momentum is not None
    return not getattr(module, "inplace", False) or isinstance(module, (nn.ReLU, nn.Dropout))


class Stack(fx.Interpreter):
    """K networks of one shape.

    Args:
        models: the networks, in which traced() finds the same graph.

    Attributes:
        weights, gradients: (K, n) float32 each, all trainable weights of a network in a row. Each
            parameter begins at a cache line, as products may be added up by address.
        buffers: name -> (K, ...), the statistics of batch norm.
        is_vector: (n,) bool: which weights are biases or those of norm layers.
    """

    def __init__(self, models):
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
        self.is_vector = torch.cat(
            [
                torch.full((padded(_places(shape)),), len(shape) < 2)
                for shape in self.shapes.values()
            ]
        )
        buffers = [dict(model.named_buffers()) for model in models]
        self.buffers = {name: torch.stack([one[name] for one in buffers]) for name in buffers[0]}

    def _views(self, vectors):
        """Name of each parameter -> its part of (K, n) vectors: (K, F), or (K, out, in), where
        `in` is padded to whole cache lines by weights that are 0 and stay so."""
        views, start = {}, 0
        for name, shape in self.shapes.items():
            part = vectors[:, start : start + _places(shape)]
            views[name] = part.unflatten(1, (shape[0], -1)) if len(shape) > 1 else part
            start += padded(_places(shape))
        return views

    def scores(self, inputs, present=None, dropout=None):
        """The networks' scores, (K, B, outputs).

        Args:
            inputs: (K, B, ...) float32.
            present: in training: (K, B) bool, which of the B are samples; the rest fills up a short
                batch. None: in evaluation.
            dropout: in training: a torch.Generator of each network.
        """
        self.present, self.dropout = present, dropout
        if present is not None:
            self.counts = present.sum(dim=1).tolist()
        return self.run(inputs)

    def differentiate(self, loss):
        """Set the gradients to those of the sum of the networks' losses."""
        found = torch.autograd.grad(loss, list(self.parameters.values()))
        for gradient, value in zip(self._of_parameters, found, strict=True):
            gradient.copy_(value)

    def call_module(self, target, args, kwargs):
        module, (inputs,) = self.fetch_attr(target), args
        if isinstance(module, ELEMENTWISE):
            return module(inputs)
        if isinstance(module, nn.Flatten):
            return inputs.flatten(2)
        return getattr(self, f"_{type(module).__name__.lower()}")(target, module, inputs)

    def call_function(self, target, args, kwargs):
        return args[0].flatten(2) if target is torch.flatten else target(*args, **kwargs)

    def call_method(self, target, args, kwargs):
        if target == "flatten":
            return args[0].flatten(2)
        return super().call_method(target, args, kwargs)

    def _parameter(self, target, name):
        """(K, 1, F) of a vector, (K, out, in) of a matrix; None: the module has none."""
        value = self.parameters.get(f"{target}.{name}")
        return value.unsqueeze(1) if value is not None and value.dim() == 2 else value

    def _linear(self, target, module, inputs):
        weight, bias = (self._parameter(target, name) for name in ("weight", "bias"))
        # So that the product that is the gradient of each network's weights begins at a cache line.
        inputs = F.pad(inputs, (0, weight.shape[2] - inputs.shape[2]))
        if bias is None:
            return torch.bmm(inputs, weight.transpose(1, 2))
        return torch.baddbmm(bias, inputs, weight.transpose(1, 2))

    def _dropout(self, target, module, inputs):
        if self.present is None or not module.p:
            return inputs
        # As torch draws for a network alone: in the shape of its batch.
        keep = torch.zeros_like(inputs)
        for mine, count, random in zip(keep, self.counts, self.dropout, strict=True):
            if count:
                drawn = torch.empty((count, *mine.shape[1:])).bernoulli_(
                    1 - module.p, generator=random
                )
                mine[:count] = drawn.div_(1 - module.p)
        return inputs * keep

    def _layernorm(self, target, module, inputs):
        outputs = F.layer_norm(inputs, module.normalized_shape, eps=module.eps)
        weight, bias = (self._parameter(target, name) for name in ("weight", "bias"))
        outputs = outputs if weight is None else outputs * weight
        return outputs if bias is None else outputs + bias

    def _batchnorm1d(self, target, module, inputs):
        mean, variance = (self.buffers[f"{target}.running_{name}"] for name in ("mean", "var"))
        mean, variance = mean.unsqueeze(1), variance.unsqueeze(1)
        if self.present is not None:
            mean, variance = self._statistics(target, module, inputs)
        outputs = (inputs - mean) / (variance + module.eps).sqrt()
        return outputs * self._parameter(target, "weight") + self._parameter(target, "bias")

    def _statistics(self, target, module, inputs):
        """Mean and variance of each network's batch, (K, 1, F) each; the running ones follow."""
        is_sample = self.present.unsqueeze(2)
        count = is_sample.sum(dim=1, keepdim=True).clamp(min=1)
        mean = (inputs * is_sample).sum(dim=1, keepdim=True) / count
        variance = ((inputs - mean).square() * is_sample).sum(dim=1, keepdim=True) / count
        takes_part = self.present.any(dim=1)
        with torch.no_grad():
            unbiased = variance * count / (count - 1).clamp(min=1)
            for name, value in (("mean", mean), ("var", unbiased)):
                running = self.buffers[f"{target}.running_{name}"]
                rate = module.momentum * takes_part.unsqueeze(1)
                running.lerp_(value.squeeze(1), rate.to(running.dtype))
            self.buffers[f"{target}.num_batches_tracked"] += takes_part
        return mean, variance

    def state_dict(self, number, weights, buffers):
        """The state_dict of a network.

        Args:
            weights, buffers: as the attributes of these names.
        """
        values = self._views(weights[number : number + 1]) | {
            name: values[number : number + 1] for name, values in buffers.items()
        }
        state = {}
        for name in self.names:
            shape, value = self.shapes.get(name), values[name][0]
            state[name] = (value if shape is None else value[..., : shape[-1]]).clone()
        return state
