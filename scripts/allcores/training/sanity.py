"""Try a run on two random samples before it starts: do its parts fit together?"""

import contextlib
import copy
import sysconfig
import time
import traceback
from multiprocessing import get_context

import torch

from allcores.data import storage
from allcores.machine.lifetime import die_with_parent
from allcores.study import registry
from allcores.training import losses, models, schedules
from allcores.training.optimizers import OptimizerMaker

LONGEST = 1000  # characters of a problem
LONG_ENOUGH, MOST_TIMED = 0.05, 32  # seconds and samples by which a step is timed
STEPS = 10**9  # of a schedule that is only made to see whether it can be; enough for any


class UnfitPartError(Exception):
    """A part of a run that does not fit the others.

    Attributes:
        place: of the part in the config, such as ("schedules", label).
        problem: in one line.
    """

    def __init__(self, place, problem):
        super().__init__(place, problem)
        self.place, self.problem = place, problem


@contextlib.contextmanager
def _blame(*place):
    """Raise whatever is raised inside, perhaps by a user's code, as a fault of the part there."""
    try:
        yield
    except UnfitPartError:
        raise
    except Exception as error:
        text = " ".join(str(error).split()) or "no message"
        if len(text) > LONGEST:
            text = f"{text[: LONGEST // 2]} [...] {text[-LONGEST // 2 :]}"
        problem = text if type(error) is ValueError else f"{type(error).__name__}: {text}"
        raise UnfitPartError(place, problem + _line_of_user(error)) from error


def _line_of_user(error):
    """Where an error was raised in code that is neither ours nor installed, in brackets; or ""."""
    frames = traceback.extract_tb(error.__traceback__)
    known = str(registry.LIBRARY), sysconfig.get_path("purelib"), sysconfig.get_path("stdlib")
    lines = [frame for frame in frames if not frame.filename.startswith((*known, "<"))]
    return f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines else ""


def tried_out(run, shape, classes, strategies=()):
    """Train the model of a run for one step; returns what a sample takes.

    Args:
        run: the Run, without `auto`.
        shape: of a sample, (C, H, W) of an image.
        classes: number of classes; None: the targets are numbers.
        strategies: Choices of the strategies that are to train it in several processes.

    Returns:
        What costs_of_a_sample() returns; empty if that fails.

    Raises:
        UnfitPartError: it cannot be trained.
    """
    with _blame("models", run.model.label):
        return _try_out(run, shape, classes, strategies)


def check_in_child(run, data_folder):
    """Try out a run on samples of the shape of a prepared dataset, in a child process: this process
    forks the ranks later, and must not have started threads by then.

    Raises:
        ValueError: the run cannot be trained.
    """
    info = storage.read_info(data_folder)
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def try_out():
        die_with_parent()
        torch.set_num_threads(1)
        classes = info["classes"] and len(info["classes"])
        try:
            tried_out(run, info["shape"][1:], classes, [run.strategy] * (run.processes > 1))
            sender.send(None)
        except UnfitPartError as error:
            sender.send(f"{error.place[1]}: {error.problem}")

    child = context.Process(target=try_out)
    child.start()
    sender.close()
    try:
        problem = receiver.recv()
    except EOFError:
        problem = f"{run.model.label}: the model ends the process that it is tried out in"
    child.join()
    if problem:
        raise ValueError(problem)


def _try_out(run, shape, classes, strategies):
    """Train a new model for one step on two samples; returns what tried_out() does.

    Raises:
        ValueError: the model's output does not fit, or it has nothing to train.
    """
    torch.manual_seed(0)
    outputs = classes or 1
    model = models.build(run, shape, outputs)
    inputs = torch.randn(2, *shape)
    model.train()
    before = len(list(model.parameters()))
    with models.precision(run):
        scores = model(inputs)
    _check_output(scores, outputs, "in training")
    if len(list(model.parameters())) != before:
        raise ValueError("the model gets more parameters when it is called")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("the model has no parameters to train")
    targets = torch.randn(2) if classes is None else torch.arange(2) % classes
    with _blame("models", run.model.label, "optimizer"):
        optimizer = OptimizerMaker.of_run(run, model)(model.parameters())
    with _blame("schedules", run.schedule.label):
        schedules.Schedule(run.schedule, run.optimizer.options["lr"], STEPS).end_batch()
    with _blame("models", run.model.label, "loss"):
        criterion = losses.build(run.loss.name, run.loss.options, classes, targets.numpy())
        loss = criterion(scores.float(), targets)
        if loss.shape != ():
            raise ValueError(f"the loss is {tuple(loss.shape)}; expected one number")
        if run.loss.name in losses.OF_LOG_PROBABILITIES:
            _check_log_probabilities(scores.float(), run.loss.name)
    loss.backward()
    for strategy in strategies:
        _check_strategy(strategy, model)
    with _blame("models", run.model.label, "optimizer"):
        optimizer.step()
    _try_out_one(run, copy.deepcopy(model), inputs[:1])
    model.eval()
    with torch.inference_mode():
        _check_output(model(inputs), outputs, "in evaluation")
    with models.precision(run):
        try:
            return costs_of_a_sample(model, inputs, criterion, targets)
        except Exception:  # a compiled model, say
            return {}


def _check_strategy(strategy, model):
    """Check that a strategy, a Choice, can train a model, which has its gradients."""
    with _blame("strategies", strategy.label):
        strategy_class = registry.strategies()[strategy.name].load()
        problem = strategy_class.refusal(model, **strategy.options)
        if problem:
            raise ValueError(f"cannot train this model: it {problem}")


def _check_output(scores, outputs, when):
    if not torch.is_tensor(scores) or scores.shape != (2, outputs):
        shape = tuple(scores.shape) if torch.is_tensor(scores) else type(scores).__name__
        raise ValueError(
            f"the model's output for 2 samples is {shape} {when}; expected (2, {outputs}), a score "
            "for each class, or one for a number"
        )


def _check_log_probabilities(scores, loss):
    """Check that exp(scores), (2, classes), are probabilities, up to rounding in half precision."""
    sums = scores.logsumexp(dim=1)
    if not torch.allclose(sums, torch.zeros(2), atol=0.05):
        raise ValueError(
            f"{loss} is of log-probabilities, as of torch.nn.LogSoftmax, which the model does not "
            "give; expected cross_entropy for scores"
        )


def _try_out_one(run, model, sample):
    """Try one sample, if a worker's share of a batch may be that: batch norm cannot train on it.

    Raises:
        ValueError: the model cannot be trained on one sample, and some worker gets no more.
    """
    if run.batch_size // run.workers > 1:
        return
    try:
        model(sample)
    except ValueError as error:
        raise ValueError(
            f"a batch of {run.batch_size} leaves {run.workers} worker(s) one sample each: {error}"
        ) from None


def costs_of_a_sample(model, inputs, criterion, targets):
    """What it takes to train a model on a sample.

    Args:
        inputs: (2, ...).
        criterion: function of scores and targets that gives the loss.
        targets: (2,), of these inputs.

    Returns:
        {"seconds": of forward and backward pass on a thread; "activation_bytes": kept for the
        backward pass; "weight_bytes": of the model}
    """
    model.train()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = _seconds_of_a_sample(model, inputs, criterion, targets)
    finally:
        torch.set_num_threads(threads)
    return {
        "seconds": seconds,
        "activation_bytes": _activation_bytes(model, inputs) / len(inputs),
        "weight_bytes": sum(parameter.nbytes for parameter in model.parameters()),
    }


def _seconds_of_a_sample(model, inputs, criterion, targets):
    """Timed with as many samples, MOST_TIMED at most, as take LONG_ENOUGH."""
    while True:
        criterion(model(inputs).float(), targets).backward()  # the first time takes longer
        began = time.perf_counter()
        criterion(model(inputs).float(), targets).backward()
        seconds = time.perf_counter() - began
        if seconds > LONG_ENOUGH or len(inputs) >= MOST_TIMED:
            return seconds / len(inputs)
        inputs, targets = inputs.repeat(4, *[1] * (inputs.ndim - 1)), targets.repeat(4)


def _activation_bytes(model, inputs):
    activations = {}
    weights = {tensor.untyped_storage().data_ptr() for tensor in model.parameters()}

    def keep(tensor):
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in weights:
            activations[memory.data_ptr()] = memory.nbytes()
        return tensor.detach()  # the tensor itself would be in a circle that Python does not see

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(inputs)
    return sum(activations.values())
