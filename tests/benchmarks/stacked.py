"""Many small networks as one: stacked weights, one batched product for all, against one by one.

MLPs of 30 inputs, `units` and 2 outputs, which differ in their weights and in the order of their
samples. Alone each has the bare loop's step of torch, with a fused optimizer. The rival of a stack
is such a network on each core. HFTA (Wang et al. 2021, arXiv 2102.02344) trains so on GPUs.
"""

import itertools
import math
import sys
import time

from measure import in_a_process, in_turn, report, sized

from allcores.machine import cores

threads = int(sys.argv[-1]) if sys.argv[1:] else 1
cores.set_thread_variables(threads)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

REPEATS = 1
STEPS = sized(400, 4)
UNITS, BATCHES = sized((16, 64, 512), (16,)), sized((32, 256), (32,))
COUNTS, OPTIMIZERS = sized((10, 100), (2,)), sized(("Adam", "SGD"), ("Adam",))
INPUTS, OUTPUTS, SAMPLES = 30, 2, 455


def weights(count, units):
    """The weights and biases of so many networks, each as torch.nn.Linear would begin."""
    torch.manual_seed(0)

    def layer(inputs, outputs):
        bound = 1 / math.sqrt(inputs)
        shapes = (count, inputs, outputs), (count, 1, outputs)
        return [torch.empty(shape).uniform_(-bound, bound).requires_grad_() for shape in shapes]

    return [*layer(INPUTS, units), *layer(units, OUTPUTS)]


def data():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, INPUTS, generator=generator)
    return inputs, (inputs[:, 0] > 0).long()


def batches(count, batch):
    """Endless (count, batch) positions of samples."""
    generator = torch.Generator().manual_seed(2)
    while True:
        orders = torch.stack([torch.randperm(SAMPLES, generator=generator) for _ in range(count)])
        for chunk in orders.split(batch, dim=1):
            if chunk.shape[1] == batch:
                yield chunk


def make_optimizer(name, parameters):
    options = {"Adam": {"lr": 0.003}, "SGD": {"lr": 0.05, "momentum": 0.9}}[name]
    return getattr(torch.optim, name)(parameters, **options, fused=True)


def stacked(count, units, batch, optimizer_name):
    """The networks as one; gives (seconds per network and step, the weights in the end)."""
    w1, b1, w2, b2 = parameters = weights(count, units)
    optimizer, (inputs, targets) = make_optimizer(optimizer_name, parameters), data()

    def step(chunk):
        hidden = torch.baddbmm(b1, inputs[chunk], w1).relu_()
        scores = torch.baddbmm(b2, hidden, w2)
        loss = F.cross_entropy(scores.flatten(0, 1), targets[chunk].flatten(), reduction="sum")
        (loss / batch).backward()  # each network's gradient is that of its own mean loss
        optimizer.step()
        optimizer.zero_grad()

    return timed(step, count, batch) / count, parameters


def by_func(count, units, batch, optimizer_name):
    """As stacked(), by torch.func: vmap over the networks, grad of each."""
    parameters = weights(count, units)
    optimizer, (inputs, targets) = make_optimizer(optimizer_name, parameters), data()

    def loss_of(network, images, labels):
        w1, b1, w2, b2 = network
        return F.cross_entropy((images @ w1 + b1).relu() @ w2 + b2, labels)

    gradients_of = torch.func.vmap(torch.func.grad(loss_of))

    def step(chunk):
        gradients = gradients_of(tuple(parameters), inputs[chunk], targets[chunk])
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()

    return timed(step, count, batch) / count, parameters


def alone(units, batch, optimizer_name, network=0, count=1):
    """One of the networks by itself; gives (seconds per step, its weights in the end)."""
    w1, b1, w2, b2 = (weight[network].detach() for weight in weights(count, units))
    model = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, units), torch.nn.ReLU(), torch.nn.Linear(units, OUTPUTS)
    )
    for layer, weight, bias in ((model[0], w1, b1), (model[2], w2, b2)):
        layer.weight.data, layer.bias.data = weight.T.clone(), bias.flatten().clone()
    optimizer, (inputs, targets) = make_optimizer(optimizer_name, model.parameters()), data()

    def step(chunk):
        F.cross_entropy(model(inputs[chunk[network]]), targets[chunk[network]]).backward()
        optimizer.step()
        optimizer.zero_grad()

    seconds = timed(step, count, batch)
    return seconds, [model[0].weight.T, model[0].bias, model[2].weight.T, model[2].bias]


def timed(step, count, batch):
    source = batches(count, batch)
    for chunk in itertools.islice(source, STEPS // 4):
        step(chunk)
    began = time.perf_counter()
    for chunk in itertools.islice(source, STEPS):
        step(chunk)
    return (time.perf_counter() - began) / STEPS


def deviation(count, units, batch, optimizer_name):
    """How far a stacked network is from the same one alone: the largest relative difference."""
    _, together = stacked(count, units, batch, optimizer_name)
    _, lone = alone(units, batch, optimizer_name, network=count - 1, count=count)
    pairs = zip((weight[-1].detach() for weight in together), lone, strict=True)
    return max(
        float((one - two.detach()).abs().max() / two.detach().abs().max()) for one, two in pairs
    )


if __name__ == "__main__":
    if sys.argv[1:]:
        torch.set_num_threads(threads)
        how, *sizes, optimizer_name = sys.argv[1:-1]
        result = globals()[how](*map(int, sizes), optimizer_name)
        print(result if how == "deviation" else 1e6 * result[0])
        sys.exit()
    rows = []

    def measured(*arguments):
        return lambda: in_a_process(__file__, *arguments)

    for units, batch, name in itertools.product(UNITS, BATCHES, OPTIMIZERS):
        alternatives = {("alone", 1): measured("alone", units, batch, name, 1)}
        for count, used in itertools.product(COUNTS, (1, 2)):
            sizes = count, units, batch, name, used
            alternatives[f"{count} stacked", used] = measured("stacked", *sizes)
        sizes = COUNTS[-1], units, batch, name, 1
        alternatives[f"{COUNTS[-1]} by torch.func", 1] = measured("by_func", *sizes)
        seconds = in_turn(alternatives, REPEATS)
        title = f"30-{units}-2, batch {batch}, {name}"
        rows += [
            (f"{title}: {how}, {used} core(s)", "us", values)
            for (how, used), values in seconds.items()
        ]
        rows.append((f"{title}: largest deviation", "", [measured("deviation", *sizes)()]))
    report("stacked", rows)
