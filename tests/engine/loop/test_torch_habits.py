"""What programs of torch are used to do with an optimizer, with buffers, hooks and errors."""

import gc
from pathlib import Path

import pytest
import torch
from test_worker import CLASSES, INPUTS, TARGETS, Tied, adam, loss_of, momentum, plain

import allcores


@pytest.mark.parametrize("strategy", ["serial", "shared_memory"])
def test_an_optimizer_may_call_what_computes_the_gradients(strategy):
    def weights(worker, with_closure):
        torch.manual_seed(0)
        shared = worker.share(plain(), momentum, strategy)

        def closure():
            shared.zero_grad()
            loss = loss_of(shared.model, INPUTS[:4], TARGETS[:4])
            loss.backward()
            return loss

        if with_closure:
            assert shared.optimizer.step(closure) > 0
        else:
            closure()
            shared.step()
        shared.synchronize()
        return shared.strategy.module.state_dict()

    workers = 1 if strategy == "serial" else 2
    (one, *_), (other, *_) = (allcores.run(weights, how, workers=workers) for how in (True, False))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_scaler_of_gradients_is_refused_where_workers_would_skip_other_steps():
    def scaled(worker, strategy):
        shared = worker.share(plain(), momentum, strategy)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(loss_of(shared.model, INPUTS[:4], TARGETS[:4])).backward()
        scaler.step(shared.optimizer)

    allcores.run(scaled, "ddp", workers=2)
    with pytest.raises(allcores.RankFailedError, match="would skip different steps; use bfloat16"):
        allcores.run(scaled, "ring", workers=2)


def test_an_optimizer_outlives_no_model():
    def outliving(worker):
        optimizer = worker.share(plain(), momentum, "ring").optimizer
        gc.collect()
        optimizer.step()

    with pytest.raises(allcores.RankFailedError, match="keep what share"):
        allcores.run(outliving, workers=2)


class Caching(torch.nn.Module):
    """Its table, which is not saved, grows with the longest input of a worker."""

    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(6, CLASSES)
        self.register_buffer("table", torch.zeros(1), persistent=False)
        self.register_forward_pre_hook(self.see)

    def see(self, module, inputs):
        self.seen = inputs[0].shape

    def forward(self, inputs):
        if len(inputs) > len(self.table):
            self.register_buffer("table", torch.zeros(len(inputs)), persistent=False)
        return self.last(inputs)


@pytest.mark.parametrize("strategy", ["ddp", "shared_memory"])
def test_caches_of_workers_may_differ_and_hooks_see_inputs(strategy):
    def cached(worker):
        shared = worker.share(Caching(), momentum, strategy)
        count = 4 + worker.rank
        loss_of(shared.model, INPUTS[:count], TARGETS[:count]).backward()
        shared.step()
        shared.synchronize()
        return len(shared.strategy.module.table)

    assert allcores.run(cached, workers=2) == [4, 5]


@pytest.mark.parametrize(
    ("error", "is_short"), [(OSError(28, "No space left"), True), (OSError("of a library"), False)]
)
def test_an_error_is_told_with_its_traceback_unless_it_says_all(error, is_short):
    def failing(worker):
        raise error

    with pytest.raises(allcores.RankFailedError) as found:
        allcores.run(failing, workers=1)
    assert ("Traceback" in str(found.value)) != is_short


def test_a_loop_over_models_opens_no_more_files():
    def files_after_each(worker):
        found = []
        for _ in range(3):
            shared = worker.share(Tied(), adam, "ddp", backend="shm")
            loss_of(shared.model, INPUTS[:4], TARGETS[:4]).backward()
            shared.step()
            found.append(len([*Path("/proc/self/fd").iterdir()]))
        return found

    for _, second, third in allcores.run(files_after_each, workers=2):
        assert second == third
