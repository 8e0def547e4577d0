"""allcores.run(): the strategies in a loop of one's own, held against a plain loop of torch."""

import contextlib
import gc
import resource
import subprocess
import sys
import weakref

import pytest
import torch
from conftest import ENVIRONMENT, ROOT
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import allcores
from allcores.strategies.base import Strategy

CLASSES, BATCH = 3, 16
torch.manual_seed(0)
INPUTS, TARGETS = torch.randn(53, 6), torch.randint(0, CLASSES, (53,))  # the last batch has 5


class Tied(torch.nn.Module):
    """Two layers with one weight, and one that is frozen."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.last = torch.nn.Linear(6, CLASSES)
        self.last.bias.requires_grad_(False)
        self.scale = torch.nn.Parameter(torch.tensor(1.0))  # of no dimension

    def forward(self, inputs):
        return self.last(self.second(self.first(inputs).relu()).relu()) * self.scale


def plain():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, CLASSES))


class Gaps(torch.nn.Module):
    """Weights that are views with gaps between their rows."""

    def __init__(self):
        super().__init__()
        query, key = torch.randn(6, 6).chunk(2, 1)
        self.query, self.key = torch.nn.Parameter(query), torch.nn.Parameter(key)
        self.last = torch.nn.Linear(6, CLASSES)

    def forward(self, inputs):
        return self.last(torch.cat([inputs @ self.query, inputs @ self.key], 1))


MODELS = {
    "gaps": Gaps,
    "plain": plain,
    "tied": Tied,
    "double": lambda: plain().double(),
    "channels_last": lambda: torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 2, 3)),
        torch.nn.Conv2d(1, 4, 2),
        torch.nn.Flatten(),
        torch.nn.Linear(8, CLASSES),
    ).to(memory_format=torch.channels_last),
}


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def loss_of(model, inputs, targets):
    dtype = next(model.parameters()).dtype
    return torch.nn.functional.cross_entropy(model(inputs.to(dtype)), targets)


def train(worker, make, strategy="shared_memory", epochs=2, data=(INPUTS, TARGETS), **options):
    """Train as a user would; returns the weights."""
    options = {"make_optimizer": adam, "file": None, "batch_size": BATCH} | options
    file, batch_size = options.pop("file"), options.pop("batch_size")
    torch.manual_seed(worker.rank)  # every worker takes the weights of the first
    shared = worker.share(make(), options.pop("make_optimizer"), strategy, **options)
    schedule = torch.optim.lr_scheduler.StepLR(shared.optimizer, 1, 0.5)
    for epoch in range(shared.saved.get("epoch", 0), epochs):
        for (inputs, targets), weight in worker.batches(data, batch_size, epoch=epoch):
            (weight * loss_of(shared.model, inputs, targets)).backward()
            shared.step()
        shared.synchronize()
        schedule.step()
        if file:
            shared.save(file, epoch=epoch + 1)
    return shared.strategy.module.state_dict()


def expected(make, make_optimizer, epochs=2, clip_norm=None):
    """The weights after a plain loop on the same batches."""
    torch.manual_seed(0)
    model = make()
    optimizer = make_optimizer(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for epoch in range(epochs):
        for (inputs, targets), _ in lone_batches(epoch):
            optimizer.zero_grad()
            loss_of(model, inputs, targets).backward()
            if clip_norm:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
            optimizer.step()
        schedule.step()
    return model.state_dict()


def lone_batches(epoch):
    return allcores.run(
        lambda worker: list(worker.batches((INPUTS, TARGETS), BATCH, epoch=epoch)), workers=1
    )[0]


def close(mine, theirs, tolerance=2e-6):
    return all(torch.allclose(mine[name], theirs[name], atol=tolerance) for name in theirs)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("strategy", "model"),
    [*(("shared_memory", name) for name in MODELS), ("ddp", "tied"), ("ring", "channels_last")],
)
def test_any_model_trains_as_in_a_plain_loop(strategy, workers, model):
    make_optimizer = momentum if model == "plain" else adam
    found = allcores.run(
        train, MODELS[model], strategy, make_optimizer=make_optimizer, workers=workers
    )
    wanted = expected(MODELS[model], make_optimizer)
    assert len(found) == workers
    assert all(close(weights, wanted) for weights in found)


def noisy():
    return torch.nn.Sequential(
        *(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(0.3)),
        torch.nn.Linear(8, CLASSES),
    )


def test_batch_norm_and_dropout_are_those_of_torchs_ddp():
    """Each worker's statistics are of its own samples, and its noise its own, by either."""
    of_ddp, of_ours = (
        allcores.run(train, noisy, strategy, workers=2)[0] for strategy in ("ddp", "shared_memory")
    )
    assert "1.running_var" in of_ddp
    assert close(of_ours, of_ddp)


def test_servers_end_where_the_model_is_shared():
    found = allcores.run(train, plain, "parameter_server", workers=2, servers=2)
    assert len(found) == 2
    assert all(close(weights, expected(plain, adam)) for weights in found)


def test_gradients_are_clipped_over_all_workers():
    found = allcores.run(train, plain, clip_norm=0.1, workers=2)
    assert close(found[0], expected(plain, adam, clip_norm=0.1))
    assert not close(found[0], expected(plain, adam))


class Stream(IterableDataset):
    def __iter__(self):
        return zip(INPUTS, TARGETS, strict=True)


def loader(workers=0):
    return DataLoader(TensorDataset(INPUTS, TARGETS), BATCH, shuffle=True, num_workers=workers)


DATA = {
    "dataset": lambda: (TensorDataset(INPUTS, TARGETS), BATCH),
    "numpy": lambda: ((INPUTS.numpy(), TARGETS.numpy()), BATCH),
    "loader": lambda: (loader(), None),
    "loader with workers": lambda: (loader(2), None),
    "stream": lambda: (Stream(), BATCH),
    "loader of a stream": lambda: (DataLoader(Stream(), BATCH), None),
}


@pytest.mark.parametrize("kind", DATA)
def test_each_sample_comes_once_whatever_the_data_are(kind):
    data, batch_size = DATA[kind]()

    def parts(worker):
        return [(torch.as_tensor(x), w) for (x, _), w in worker.batches(data, batch_size)]

    torch.manual_seed(5)
    (alone,) = allcores.run(parts, workers=1)
    torch.manual_seed(5)
    both = allcores.run(parts, workers=2)
    assert [len(batch) for batch, _ in alone] == [16, 16, 16, 5]
    for (whole, _), *shares in zip(alone, *both, strict=True):
        mine = torch.cat([part for part, _ in shares])
        assert torch.equal(whole.sort(0)[0], mine.sort(0)[0])
        assert sum(weight for _, weight in shares) == 2
        assert [weight * len(whole) for part, weight in shares] == [
            2 * len(part) for part, _ in shares
        ]


def test_a_worker_without_a_sample_gets_one_of_weight_0():
    def weights(worker):
        return [weight for _, weight in worker.batches(INPUTS[:5], 4)]

    assert allcores.run(weights, workers=3) == [[1.5, 3.0], [0.75, 0.0], [0.75, 0.0]]


@pytest.mark.parametrize(
    ("strategy", "count"), [("shared_memory", 3), ("shared_memory", 1), ("ddp", 3), ("ring", 1)]
)
def test_training_goes_on_with_other_workers(tmp_path, strategy, count):
    file = tmp_path / "state.pt"
    allcores.run(train, Tied, strategy, epochs=1, file=file, workers=2)
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]

    def resumed(worker):
        shared = worker.share(Tied(), adam, strategy, resume=file)
        shared.optimizer.param_groups[0]["lr"] = 0.005
        for (inputs, targets), weight in worker.batches((INPUTS, TARGETS), BATCH, epoch=1):
            (weight * loss_of(shared.model, inputs, targets)).backward()
            shared.step()
        shared.synchronize()
        return shared.strategy.module.state_dict()

    found = allcores.run(resumed, workers=count)
    assert all(close(weights, expected(Tied, adam)) for weights in found)


@pytest.mark.parametrize("strategy", ["ddp", "ring", "shared_memory"])
def test_models_of_a_loop_are_not_all_kept_and_limits_are_the_callers_again(strategy):
    def one_after_the_other(worker):
        kept = []
        for _ in range(5):
            shared = worker.share(Tied(), adam, strategy)
            loss_of(shared.model, INPUTS[:4], TARGETS[:4]).backward()
            shared.step()
            shared.synchronize()
            kept.append(weakref.ref(shared.strategy.module))
        del shared
        gc.collect()
        return sum(model() is not None for model in kept)

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert allcores.run(one_after_the_other, workers=2) == [0, 0]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


@pytest.mark.parametrize("strategy", ["ddp", "ring", "shared_memory"])
@pytest.mark.parametrize("make", [torch.optim.NAdam, torch.optim.ASGD])
def test_a_state_in_memory_can_be_resumed_from_twice_to_the_bit(strategy, make):
    def from_one_state(worker):
        def trained(steps, **how):
            torch.manual_seed(0)
            shared = worker.share(Tied().double(), make, strategy, **how)
            for _ in range(steps):
                inputs = INPUTS[:4].double()
                shared.model(inputs).square().mean().backward()
                shared.step()
            return shared

        half = trained(3)
        state = worker.broadcast(half.state())
        for _ in range(3):
            half.model(INPUTS[:4].double()).square().mean().backward()
            half.step()
        again = [trained(3, resume=state).strategy.module.state_dict() for _ in range(2)]
        wanted = half.strategy.module.state_dict()
        return [all(torch.equal(one[name], wanted[name]) for name in wanted) for one in again]

    assert allcores.run(from_one_state, workers=2) == [[True, True]] * 2


def test_what_a_layer_learned_before_does_not_count_as_the_gradient_of_a_step():
    def half_trained(worker):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
        model[0](torch.ones(1, 2)).sum().backward()
        shared = worker.share(model, adam, "ddp")
        shared.model(torch.ones(1, 2)).sum().backward()
        shared.step()

    allcores.run(half_trained, workers=2)


def test_the_state_of_servers_is_for_as_many_servers(tmp_path):
    file = tmp_path / "state.pt"
    allcores.run(train, plain, "parameter_server", epochs=1, file=file, workers=2, servers=2)
    with pytest.raises(allcores.RankFailedError, match="with 2 servers; found SharedMemory, A"):
        allcores.run(train, plain, resume=file, workers=2)
    found = allcores.run(train, plain, "parameter_server", resume=file, workers=1, servers=2)
    assert len(found) == 1


@pytest.mark.parametrize("strategy", ["shared_memory", "ddp", "ring"])
def test_gradients_are_accumulated(strategy):
    def halves(worker):
        torch.manual_seed(0)
        shared = worker.share(Tied(), adam, strategy)
        for (inputs, targets), _ in worker.batches((INPUTS, TARGETS), 12, shuffle=False):
            if len(inputs) < 6:
                continue
            with contextlib.suppress(KeyError), shared.accumulating():
                raise KeyError  # from which a loop may go on
            with shared.accumulating():
                (loss_of(shared.model, inputs[:3], targets[:3]) / 2).backward()
            (loss_of(shared.model, inputs[3:], targets[3:]) / 2).backward()
            shared.step()
        return shared.strategy.module.state_dict()

    def wholes(worker):
        torch.manual_seed(0)
        shared = worker.share(Tied(), adam, "serial")
        for (inputs, targets), _ in worker.batches((INPUTS, TARGETS), 12, shuffle=False):
            if len(inputs) == 12:
                loss_of(shared.model, inputs, targets).backward()
                shared.step()
        return shared.strategy.module.state_dict()

    (wanted,) = allcores.run(wholes, workers=1)
    for weights in allcores.run(halves, workers=2):
        assert close(weights, wanted)


def test_a_weight_without_gradient_on_one_worker_counts_as_zero_there():
    def one_of_two(worker):
        torch.manual_seed(0)
        parts = torch.nn.ModuleList([torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)])
        before = [part.weight.detach().clone() for part in parts]
        shared = worker.share(
            parts, lambda weights: torch.optim.SGD(weights, lr=1.0), "shared_memory"
        )
        shared.model[worker.rank](torch.ones(1, 2)).sum().backward()
        shared.step()
        return [float((part.weight - old).sum()) for part, old in zip(parts, before, strict=True)]

    for moved in allcores.run(one_of_two, workers=2):
        assert moved == pytest.approx([-1.0, -1.0])


class Lazy(Strategy):
    """A user's own: the first worker's gradient counts."""

    def __init__(self, model, make_optimizer, world):
        super().__init__(model, make_optimizer(model.parameters()), world)

    def step(self, lr):
        for parameter in self.module.parameters():
            parameter.grad.copy_(self.world.broadcast(parameter.grad))
        super().step(lr)


def divided():
    """A DataLoader whose batches are divided, as of a program for DDP."""
    sampler = DistributedSampler(INPUTS, num_replicas=2, rank=0)
    return DataLoader(INPUTS, batch_sampler=BatchSampler(sampler, 4, drop_last=False))


def test_a_strategy_may_be_a_class_of_ones_own():
    first, second = allcores.run(train, plain, Lazy, workers=2)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"strategy": "shared"}, "found 'shared'; expected one of .*, shared_memory"),
        ({"bucket_mb": 3}, "unexpected keyword argument 'bucket_mb'"),
        ({"strategy": "parameter_server"}, "servers=1.* or more; found 0"),
        ({"strategy": "serial"}, "serial uses one worker; found 2"),
        ({"make": lambda: torch.nn.Embedding(2, 2, sparse=True)}, "those of Embedding are sparse"),
        ({"make": lambda: plain().append(torch.nn.Linear(1, 1).double())}, "float32 and float64"),
        ({"batch_size": None}, "expected a batch_size of 1 or more; found None"),
        ({"batch_size": 0}, "expected a batch_size of 1 or more; found 0"),
        ({"data": loader()}, "expected no batch_size"),
        ({"data": divided(), "batch_size": None}, "expected no DistributedSampler"),
        ({"data": {"x": 1}}, "expected a tensor or array, .* found dict"),
        ({"data": (INPUTS, TARGETS[1:])}, "expected arrays of one length; found 52, 53"),
        ({"make_optimizer": lambda p: torch.optim.SGD([{"params": [q]} for q in p], 1)}, "group"),
    ],
)
def test_what_is_wrong_is_told(given, message):
    given = {"make": plain} | given
    with pytest.raises(allcores.RankFailedError, match=message):
        allcores.run(train, given.pop("make"), workers=2, **given)


@pytest.mark.parametrize("strategy", ["shared_memory", "ddp"])
def test_the_example_runs(strategy):
    program = ROOT / "examples" / "loop" / "train.py"
    said = subprocess.run(
        [sys.executable, program, "--strategy", strategy, "--epochs", "1"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert f"{strategy}: loss 0.14" in said.stdout, said.stderr


def train_past(worker, strategy, first=False):
    """Call the model itself in place of shared.model, perhaps not in the first step."""
    torch.manual_seed(0)
    model = plain()
    shared = worker.share(model, momentum, strategy)
    if first:
        loss_of(shared.model, INPUTS[:4], TARGETS[:4]).backward()
        shared.step()
    for (inputs, targets), weight in worker.batches((INPUTS, TARGETS), BATCH):
        (weight * loss_of(model, inputs, targets)).backward()
        shared.step()
    shared.synchronize()
    return model.state_dict()


SYNCHRONOUS = ["ring", "shared_memory", "local_sgd", "gossip"]


@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_the_model_itself_may_be_called(strategy):
    first, second = allcores.run(train_past, strategy, workers=2)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("first", [False, True])
def test_ddp_refuses_a_step_whose_forward_was_not_its_own(first):
    with pytest.raises(allcores.RankFailedError, match=r"forward\(\) of the strategy's model"):
        allcores.run(train_past, "ddp", first, workers=2)


def edit_on_one(worker, strategy):
    model = plain()
    shared = worker.share(model, momentum, strategy)
    if worker.rank == 1:
        with torch.no_grad():
            model[2].bias += 1
    shared.synchronize()


@pytest.mark.parametrize("strategy", ["ddp", "ring"])
def test_workers_whose_weights_differ_are_told(strategy):
    with pytest.raises(allcores.RankFailedError, match=r"2.bias are not the same"):
        allcores.run(edit_on_one, strategy, workers=2)
