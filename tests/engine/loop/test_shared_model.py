"""A shared model goes on as one of torch's would, or says why it cannot."""

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from test_worker import INPUTS, TARGETS, Tied, adam, close, loss_of, momentum, plain, train
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

import allcores
from allcores.strategies.parameter_server import ParameterServer
from allcores.strategies.serial import Serial

SHARED = {
    **{name: {} for name in ("shared_memory", "ring", "ddp", "parameter_server")},
    "local_sgd": {"every": 1},
}
by_strategy = pytest.mark.parametrize("strategy", SHARED)


def run(function, strategy, *arguments, workers=2):
    """What the function returns on each worker."""
    servers = int(strategy == "parameter_server")
    options = SHARED.get(strategy, {})
    return allcores.run(function, strategy, options, *arguments, workers=workers, servers=servers)


def half(worker):
    """This worker's part of the samples, as many as another's."""
    mine = slice(worker.rank, 52, worker.workers)
    return INPUTS[mine], TARGETS[mine]


def clear_as_everybody(worker, strategy, options, where):
    torch.manual_seed(0)
    shared = worker.share(Tied(), momentum, strategy, **options)
    for number in range(4):
        {"optimizer": shared.optimizer, "model": shared.model}[where].zero_grad()
        loss_of(shared.model, *half(worker)).backward()
        if number != 1:  # a batch that is left out
            shared.step()
    shared.synchronize()
    return shared.strategy.module.state_dict()


@pytest.mark.parametrize("where", ["optimizer", "model"])
@by_strategy
def test_zero_grad_drops_the_gradient_and_nothing_else(strategy, where):
    (wanted,) = run(clear_as_everybody, "serial", where, workers=1)
    for weights in run(clear_as_everybody, strategy, where):
        assert close(weights, wanted)


PARTS = slice(0, 10), slice(10, None)


def add_up(worker, strategy, options):
    torch.manual_seed(0)
    shared = worker.share(plain(), momentum, strategy, **options)
    for _ in range(2):
        for part in PARTS:
            loss_of(shared.model, *(values[part] for values in half(worker))).backward()
        shared.step()
    shared.synchronize()
    return shared.strategy.module.state_dict()


def expected_sum():
    """By torch alone: the mean over two workers of the sums of their gradients."""
    torch.manual_seed(0)
    model = plain()
    optimizer = momentum(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        for rank in (0, 1):
            inputs, targets = INPUTS[rank:52:2], TARGETS[rank:52:2]
            for part in PARTS:
                (loss_of(model, inputs[part], targets[part]) / 2).backward()
        optimizer.step()
    return model.state_dict()


# torch's DDP averages in each backward() what has been added up, which gives the same.
@by_strategy
def test_gradients_of_several_backwards_add_up(strategy):
    for weights in run(add_up, strategy):
        assert close(weights, expected_sum())


def by_schedule(worker, strategy, options, file, resumes):
    torch.manual_seed(0)
    resume = file if resumes else None
    shared = worker.share(plain(), adam, strategy, resume=resume, **options)
    schedule = torch.optim.lr_scheduler.StepLR(shared.optimizer, 1, 0.1)
    if resumes:
        schedule.load_state_dict(shared.saved["schedule"])
    rates = []
    for _ in range(2):
        rates.append(shared.optimizer.param_groups[0]["lr"])
        loss_of(shared.model, *half(worker)).backward()
        shared.step()
        schedule.step()
    shared.synchronize()
    shared.save(file, schedule=schedule.state_dict())
    return rates


@by_strategy
def test_a_resumed_run_has_the_learning_rate_at_which_it_stopped(strategy, tmp_path):
    file = tmp_path / "state.pt"
    run(by_schedule, strategy, file, False)
    for rates in run(by_schedule, strategy, file, True):
        assert rates == pytest.approx([1e-4, 1e-5])


def save_at_once(worker, strategy, options, file):
    worker.share(plain(), adam, strategy, **options).save(file)


def go_on(worker, strategy, options, file):
    return train(worker, plain, strategy, resume=file, **options)


@pytest.mark.parametrize("strategy", ["shared_memory", "ring", "ddp"])
def test_a_state_from_before_the_first_step_is_taken_up(strategy, tmp_path):
    file = tmp_path / "state.pt"
    run(save_at_once, strategy, file)
    first, second = run(go_on, strategy, file)
    assert close(first, second)


@pytest.mark.parametrize("value", [np.float64(0.5), Path("best"), np.ones(2), object], ids=repr)
def test_what_could_not_be_loaded_is_not_saved(value, tmp_path):
    def keep(worker):
        worker.share(plain(), adam, "serial").save(tmp_path / "state.pt", best=value)

    with pytest.raises(allcores.RankFailedError, match=r"expected tensors, numbers.*found best="):
        allcores.run(keep, workers=1)
    assert not list(tmp_path.iterdir())


def freeze(worker):
    model = plain()
    shared = worker.share(model, adam, "shared_memory")
    model[0].weight.requires_grad_(False)
    loss_of(shared.model, *half(worker)).backward()
    shared.step()


def cycle(worker):
    shared = worker.share(plain(), momentum, "parameter_server")
    schedule = torch.optim.lr_scheduler.OneCycleLR(shared.optimizer, 0.1, total_steps=9)
    for _ in range(3):
        loss_of(shared.model, *half(worker)).backward()
        shared.step()
        schedule.step()


def only_accumulate(worker):
    shared = worker.share(plain(), adam, "ddp")
    with shared.accumulating():
        loss_of(shared.model, *half(worker)).backward()
    shared.step()


def whole_tensors(worker):
    worker.share(plain(), torch.optim.Adafactor, "ring")


def closure(worker):
    worker.share(plain(), torch.optim.LBFGS, "ddp")


def same_model_twice(worker):
    model = plain()
    return [worker.share(model, adam, "shared_memory") for _ in range(2)]


def two_with_servers(worker):
    for _ in range(2):
        worker.share(plain(), adam, "parameter_server")


def wrong_option(worker):
    worker.share(plain(), adam, "local_sgd", every=0)


def common_part(worker):
    encoder = torch.nn.Linear(4, 4)
    heads = torch.nn.Linear(4, 3), torch.nn.Linear(4, 1)
    return [worker.share(torch.nn.Sequential(encoder, head), adam, "ring") for head in heads]


def move(worker):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten())
    shared = worker.share(model, adam, "ring")
    model.to(memory_format=torch.channels_last)
    shared.model(torch.ones(2, 3, 8, 8)).sum().backward()
    shared.step()


def tied_by_data(worker):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model[0].weight.data = model[1].weight.data
    worker.share(model, adam, "shared_memory")


def with_graph(worker):
    shared = worker.share(plain(), adam, "shared_memory")
    loss_of(shared.model, *half(worker)).backward(create_graph=True)


def serial_class(worker):
    worker.share(plain(), adam, Serial)


def run_within(worker):
    allcores.run(float, workers=1)


def with_sampler(worker):
    sampler = DistributedSampler(INPUTS, worker.workers, worker.rank)
    list(worker.batches(DataLoader(INPUTS, 4, sampler=sampler)))


def uphill(worker):
    worker.share(torch.nn.Linear(4, 2), adam, "ddp", clip_norm=-1)


def usual_checkpoint(worker):
    worker.share(plain(), adam, "ddp").optimizer.state_dict()


def one_shape_each(worker):
    worker.share(torch.nn.Linear(4, 2 + worker.rank), adam, "shared_memory")


def with_class(worker):
    return type(worker.share(plain(), adam, ParameterServer).strategy).__name__


def test_a_class_that_has_servers_is_told_how_many():
    assert allcores.run(with_class, workers=1, servers=2) == ["ParameterServer"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (one_shape_each, r"expected equal models; rank 0 has \['\(2, 4\) torch.float32"),
        (common_part, "expected another model: parameters of this one are already shared"),
        (move, "weights were frozen or moved"),
        (tied_by_data, "two parameters share memory"),
        (with_graph, "expected gradients without a graph"),
        (serial_class, "Serial uses one worker; found 2"),
        (run_within, "outside of torch.distributed and of another run"),
        (with_sampler, "expected no DistributedSampler"),
        (freeze, "weights were frozen or moved"),
        (cycle, "servers accept changes of lr only; changed: .*momentum"),
        (only_accumulate, "outside of accumulating"),
        (whole_tensors, "Adafactor looks at whole tensors"),
        (closure, "LBFGS needs more than gradients"),
        (same_model_twice, "expected another model: parameters of this one are already shared"),
        (two_with_servers, "expected one share.* in a run with servers"),
        (usual_checkpoint, "the strategy has the optimizer's state: call save"),
        (uphill, "clip_norm: found -1; expected a number above 0"),
        (wrong_option, "every: found 0; expected 1 or more"),
    ],
)
def test_what_would_train_otherwise_is_refused(function, message):
    servers = function in (cycle, two_with_servers)
    with pytest.raises(allcores.RankFailedError, match=message):
        allcores.run(function, workers=2, servers=int(servers), timeout=60)


def test_processes_meet_before_they_share_a_model_servers_too(tmp_path):
    file = tmp_path / "data.pt"

    def prepared(worker):
        if worker.rank == 0:
            time.sleep(0.5)
            torch.save(INPUTS, file)
        worker.barrier()
        rows = len(torch.load(file))
        total, first = worker.sum(1), worker.broadcast(worker.rank)
        assert (total, first) == (2.0, 0)  # also on servers
        train(worker, plain, "parameter_server", epochs=1)
        worker.barrier()
        return rows, total, first, worker.mean(worker.rank)

    found = allcores.run(prepared, workers=2, servers=2, timeout=60)
    assert found == [(len(INPUTS), 2.0, 0, 0.5)] * 2


class Texts(IterableDataset):
    def __iter__(self):
        return ((torch.tensor(number), f"text {number}") for number in range(5))


def test_samples_may_be_anything():
    def texts(worker, data, batch_size):
        return [list(batch[1]) for batch, _ in worker.batches(data, batch_size, shuffle=False)]

    wanted = [[["text 0", "text 2"], ["text 3"]], [["text 1"], ["text 4"]]]
    loader = DataLoader(Texts(), 3, collate_fn=lambda batch: [*zip(*batch, strict=True)])
    for given in ((Texts(), 3), (loader, None), (list(Texts()), 3)):
        assert allcores.run(texts, *given, workers=2) == wanted


def test_a_model_keeps_its_own_forward_and_buffers_of_any_kind():
    def doubled(worker):
        model = plain()
        model.register_buffer("counts", torch.full((3,), worker.rank, dtype=torch.int16))
        model.forward = lambda inputs: inputs.new_full((1,), 7.0)
        worker.share(model, adam, "ddp")
        return float(model(INPUTS)), model.counts.tolist()

    assert allcores.run(doubled, workers=2) == [(7.0, [0, 0, 0])] * 2
