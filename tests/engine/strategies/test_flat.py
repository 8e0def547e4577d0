"""A model as one vector."""

import pytest
import torch
from conftest import optimizer_maker
from torch import nn

from allcores.parallel.flat import LINE, Flat, places
from allcores_study.training.optimizers import FUSED


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))


IMAGES = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_values_strides_and_gradients_stay_those_of_the_model(memory_format):
    model, other = (network().to(memory_format=memory_format) for _ in range(2))
    flat = Flat(model)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        assert mine.stride() == theirs.stride()
    for net in (model, other):
        net(IMAGES).square().sum().backward()
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)
    assert flat.gradient.norm() == pytest.approx(
        torch.cat([p.grad.flatten() for p in other.parameters()]).norm().item(), rel=1e-5
    )


def test_the_vector_is_the_model():
    model = network()
    flat = Flat(model)
    # Weights of 108, 4, 4, 4, 32 and 2 numbers in lines of 16.
    assert len(flat.weights) == 112 + 3 * 16 + 32 + 16
    flat.weights.fill_(0.5)
    assert all((p == 0.5).all() for p in model.parameters())
    model(IMAGES).sum().backward()
    before = flat.gradient.clone()
    model(IMAGES).sum().backward()  # autograd adds into the vector; it does not replace it
    torch.testing.assert_close(flat.gradient, 2 * before)


def slices(flat, count):
    """What an optimizer gets of each of so many slices: [(place, part), ...]."""
    return [
        cut
        for where in places(flat.weights, count)
        for cut in flat.cut(where, flat.gradient[where])
    ]


@pytest.mark.parametrize("count", [1, 3, 20])
def test_each_parameter_and_each_slice_begins_at_a_cache_line(count):
    flat = Flat(network())
    for parameter in flat.parameters:
        assert parameter.data_ptr() % LINE == parameter.grad.data_ptr() % LINE == 0
    filled = [part for _, part in slices(flat, count) if len(part)]
    assert all(part.data_ptr() % LINE == part.grad.data_ptr() % LINE == 0 for part in filled)


def test_frozen_parameters_stay_out():
    model = network()
    model[0].weight.requires_grad_(False)
    frozen = model[0].weight.clone()
    Flat(model).weights.fill_(0.5)
    assert torch.equal(model[0].weight, frozen)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_slices_cover_the_weights_once(count):
    model = network()
    flat = Flat(model)
    flat.weights.copy_(torch.arange(len(flat.weights)))
    flat.gradient.copy_(flat.weights)
    parameters = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    cuts = slices(flat, count)
    for values in ([part.data for _, part in cuts], [part.grad for _, part in cuts]):
        assert torch.equal(torch.cat(values), parameters)
    for where, part in cuts:
        assert torch.equal(part.data, flat.weights[where])


@pytest.mark.parametrize("name", sorted(FUSED))
@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_fused_optimizer_computes_the_same_bits_on_slices(name, count):
    model, other = network(), network()
    flat = Flat(other)
    make = optimizer_maker(name, lr=0.1, weight_decay=0.1)
    optimizers = make(model.parameters()), make([part for _, part in slices(flat, count)])
    assert all(optimizer.defaults["fused"] for optimizer in optimizers)
    for _ in range(3):
        for net, optimizer in zip((model, other), optimizers, strict=True):
            net(IMAGES).square().mean().backward()
            optimizer.step()
        optimizers[0].zero_grad()
        flat.gradient.zero_()
    assert all(map(torch.equal, model.parameters(), other.parameters()))


def test_a_gradient_that_was_taken_away_is_collected():
    model = torch.nn.Linear(3, 2)
    flat = Flat(model)
    model.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    model.bias.grad = None
    flat.collect()
    assert flat.gradient.sum() == 6
    model(torch.ones(1, 3)).sum().backward()
    assert flat.gradient.sum() == 14


def test_a_view_with_gaps_takes_no_more_than_its_elements():
    model = torch.nn.Linear(3, 4)
    model.weight = torch.nn.Parameter(torch.arange(40.0).view(4, 10)[:, :3])
    wanted = {name: value.clone() for name, value in model.state_dict().items()}
    Flat(model)
    assert all(torch.equal(value, wanted[name]) for name, value in model.state_dict().items())
