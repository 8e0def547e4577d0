"""What docs/loop.md advises for a loop of one's own does what the page says."""

import re

import pytest
import torch
from conftest import ROOT
from test_worker import INPUTS, TARGETS, close, plain
from torch.utils.checkpoint import checkpoint

import allcores

DECAY = 0.1


def page_functions():
    """The names that the page's example of validation defines."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "loop.md").read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "def accuracy" in block]
    names = {"torch": torch}
    exec(block, names)
    return names


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def decaying(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=DECAY)


class Checkpointed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = plain()

    def forward(self, inputs):
        return checkpoint(self.inner, inputs, use_reentrant=False)


def train(worker, strategy, make=plain, make_optimizer=sgd, decay=0.0, autocast=False):
    torch.manual_seed(0)
    model = make()
    shared = worker.share(model, make_optimizer, strategy)
    for epoch in range(2):
        for (inputs, targets), weight in worker.batches((INPUTS, TARGETS), 16, epoch=epoch):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                scores = shared.model(inputs)
            loss = weight * torch.nn.functional.cross_entropy(scores.float(), targets)
            penalty = sum(weights.square().sum() for weights in model.parameters())
            (loss + 0.5 * decay * penalty).backward()
            shared.step()
        shared.synchronize()
    score = page_functions()["accuracy"](worker, model, INPUTS, TARGETS)
    assert score == pytest.approx((model(INPUTS).argmax(1) == TARGETS).float().mean().item())
    return dict(zip("abcd", model.state_dict().values(), strict=True))


@pytest.mark.parametrize("strategy", ["ddp", "shared_memory"])
def test_the_workers_score_all_samples_together_and_decay_is_a_term_of_the_loss(strategy):
    (wanted,) = allcores.run(train, "serial", make_optimizer=decaying, workers=1)
    for weights in allcores.run(train, strategy, decay=DECAY, workers=3):
        assert close(weights, wanted)


@pytest.mark.parametrize("strategy", ["ddp", "ring", "shared_memory"])
def test_checkpointed_activations_and_autocast_work(strategy):
    (wanted,) = allcores.run(train, "serial", workers=1)
    for weights in allcores.run(train, strategy, make=Checkpointed, workers=2):
        assert close(weights, wanted)
    for weights in allcores.run(train, strategy, autocast=True, workers=2):
        assert close(weights, wanted, tolerance=0.01)
        assert not close(weights, wanted, tolerance=1e-6)


def test_two_groups_of_an_optimizer_are_refused_with_what_to_do():
    def share(worker):
        def grouped(parameters):
            return torch.optim.SGD([{"params": [one]} for one in parameters], lr=0.1)

        worker.share(plain(), grouped, "ddp")

    with pytest.raises(allcores.RankFailedError, match=r"found 4; share parts .* or add decay"):
        allcores.run(share, workers=2)
