"""Smoke-test a run on two random samples before it starts: do its parts fit together?"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import math
import os
import re
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from allcores.machine.lifetime import die_with_parent, how_it_ended
from allcores_study import programs
from allcores_study.config import registry
from allcores_study.data import augmentation
from allcores_study.data.batches import seed_all
from allcores_study.planning import sample_costs
from allcores_study.records import fingerprint
from allcores_study.stacking import stacks
from allcores_study.tasks import base as tasks
from allcores_study.training import losses, models, schedules
from allcores_study.training.optimizers import WeightAverage, maker_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from allcores_study.config.run import Entry, Run

    Build = Callable[[], nn.Module]

LONGEST = 1000  # characters of a problem
LONGEST_TRIAL = 1e6  # seconds; faulthandler does not take infinity
STEPS = 10**9  # of a schedule, where the number of samples is unknown; enough for any


class UnfitPartError(Exception):
    """A part of a run that does not fit the others.

    Attributes:
        place: place of the part in the config, such as ("schedules", label).
        problem: what is wrong, in one line.
    """

    def __init__(self, place: tuple[str, ...], problem: str) -> None:
        super().__init__(place, problem)
        self.place, self.problem = place, problem


@contextlib.contextmanager
def _blame(*place: str) -> Iterator[None]:
    """Raise any exception inside, perhaps from a user's code, as a fault of the part there."""
    try:
        yield
    except UnfitPartError:
        raise
    except Exception as error:
        text = " ".join(str(error).split()) or "no message"
        text = "; ".join([text, *getattr(error, "__notes__", [])])
        if len(text) > LONGEST:
            text = f"{text[: LONGEST // 2]} [...] {text[-LONGEST // 2 :]}"
        problem = text if type(error) is ValueError else f"{type(error).__name__}: {text}"
        raise UnfitPartError(place, problem + _line_of_user(error)) from error


def _line_of_user(error: BaseException) -> str:
    """Return where an error was raised in the user's code, in brackets, or ""."""
    frames = traceback.extract_tb(error.__traceback__)
    return _users_line([(frame.filename, frame.lineno) for frame in frames])


def _users_line(frames: Iterable[tuple[str, int | str | None]]) -> str:
    """Return the last of these (file, line) in the user's code, in brackets, or "".

    That is code that is neither ours nor installed.
    """
    ours = map(str, (programs.PROGRAMS, registry.ENGINE, registry.LIBRARY))
    known = *ours, *map(sysconfig.get_path, ("purelib", "stdlib"))
    lines = [(file, line) for file, line in frames if not file.startswith((*known, "<"))]
    return " ({}, line {})".format(*lines[-1]) if lines else ""


def answer(
    run: Run,
    shape: Sequence[int],
    task: tasks.Task,
    strategies: Sequence[Entry] = (),
    vocabulary: int | None = None,
    limit: float = math.inf,
    steps: int | None = None,
) -> dict[str, Any]:
    """Run tried_out() in a child process and return what it finds.

    Whatever a model does to torch's settings, and threads that it leaves, end with the child. This
    process must not have started threads.

    Args:
        limit: seconds after which the model counts as hanging.

    Returns:
        {"problem": None, "counts": what tried_out() returns, "loaded": fingerprint.loaded()}, or
        {"problem": in a line, "place": see UnfitPartError}
    """
    limit = min(limit, LONGEST_TRIAL)
    # Files, not pipes: a process that the model has started would keep pipes open.
    with tempfile.TemporaryFile("w+") as answered, tempfile.TemporaryFile("w+") as stack:

        def try_out() -> None:
            die_with_parent()
            del sys.argv[1:]  # the model's module may read them, and they are not its own
            # A C thread, which no Python code can hold up; it ends this process.
            faulthandler.dump_traceback_later(limit, exit=True, file=stack)
            try:
                counts = tried_out(run, shape, task, strategies, vocabulary, steps)
                said = {"note": counts.pop("note", None), "place": _place(run)}
                said |= {"problem": None, "counts": counts, "loaded": fingerprint.loaded()}
            except UnfitPartError as error:
                said = {"problem": error.problem, "place": error.place}
            except BaseException as error:  # such as a KeyboardInterrupt of the model
                problem = f"it raises {type(error).__name__}{_line_of_user(error)}"
                said = {"problem": problem, "place": _place(run)}
            json.dump(said, answered)
            answered.flush()
            os._exit(0)  # exit() would wait for threads that the model has left

        child = get_context("fork").Process(target=try_out)
        child.start()
        child.join()
        for file in (answered, stack):
            file.seek(0)
        if text := answered.read():
            return json.loads(text)
        return {"problem": _ended(child.exitcode, stack.read(), limit), "place": _place(run)}  # type: ignore[arg-type]


def _place(run: Run) -> tuple[str, str]:
    return "models", run.model.label


def _ended(status: int, stack: str, limit: float) -> str:
    """Return in one line why a child with a smoke test has not answered.

    Args:
        stack: what faulthandler wrote, the latest call first; "": nothing.
    """
    if not stack:
        return f"the process of its smoke test {how_it_ended(status)}"
    main_thread = stack.rpartition("(most recent call first)")[2]
    frames = re.findall(r'File "(.*)", line (\d+)', main_thread)
    return f"its smoke test did not end within {limit:g} s{_users_line(frames[::-1])}"


def tried_out(
    run: Run,
    shape: Sequence[int],
    task: tasks.Task,
    strategies: Sequence[Entry] = (),
    vocabulary: int | None = None,
    steps: int | None = None,
) -> dict[str, Any]:
    """Train the model of a run for one step; return what a sample takes.

    Args:
        shape: of a sample, (C, H, W) for an image.
        strategies: those that are to train it in several processes.
        vocabulary: number of tokens; None: the inputs are not tokens.
        steps: of the shortest training, for which a schedule has to have room; None: unknown.

    Returns:
        What sample_costs.of_a_sample() returns, nothing if that fails; and "note", a sentence on
        what may be unintended, if there is one.

    Raises:
        UnfitPartError: it cannot be trained.
    """
    with _blame("models", run.model.label):
        if run.is_estimator:
            trainer = importlib.import_module(registry.trainer(run))
            return trainer.tried_out(run, shape, task, vocabulary)
        build = partial(models.build, run, shape, task.outputs, vocabulary)
        return _try_out(run, task, strategies, build, _inputs(shape, vocabulary), steps or STEPS)


def _inputs(shape: Sequence[int], vocabulary: int | None) -> Tensor:
    """Return the inputs of two samples; of tokens, the largest is among them."""
    random = torch.Generator().manual_seed(0)
    if vocabulary is None:
        return torch.randn(2, *shape, generator=random)
    inputs = torch.randint(0, vocabulary, (2, *shape), generator=random)
    inputs[0, 0] = vocabulary - 1
    return inputs


def _try_out(
    run: Run,
    task: tasks.Task,
    strategies: Sequence[Entry],
    build: Build,
    inputs: Tensor,
    steps: int,
) -> dict[str, Any]:
    """Train a new model for one step on two samples; return what tried_out() does.

    Raises:
        ValueError: the model's output does not fit, or it has nothing to train.
    """
    seed_all(0)
    model = build()
    model.train()
    with _blame("models", run.model.label, "ema"):
        WeightAverage(run, model, rank=0)  # which copies it
    plain = inputs
    with _blame("models", run.model.label, "augmentation"):
        if augment := augmentation.of_run(run):
            inputs = augment(inputs.clone(), run.seed, 0, np.arange(2))
    before = len(list(model.parameters()))
    with models.precision(run):
        scores = _scores(model, inputs)
    _check_output(scores, task, inputs, "in training")
    if len(list(model.parameters())) != before:
        raise ValueError("the model gets more parameters when it is called")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("the model has no parameters to train")
    targets = task.examples(2, inputs.shape[1:])
    with _blame("models", run.model.label, "optimizer"):
        optimizer = maker_of(run)(model.parameters())
    assert run.optimizer is not None
    with _blame("schedules", run.schedule.label):
        schedules.Schedule(run.schedule, run.optimizer.options["lr"], steps).end_batch()
    with _blame("models", run.model.label, "loss"):
        criterion = losses.build(run.loss, task, task.stored_examples(2, inputs.shape[1:]))
        loss = criterion(scores.float(), targets)
        if not torch.is_tensor(loss) or loss.shape != ():
            found = tuple(loss.shape) if torch.is_tensor(loss) else type(loss).__name__
            raise ValueError(f"the loss is {found}; expected a tensor with one number")
        if run.loss.name in losses.OF_LOG_PROBABILITIES:
            _check_log_probabilities(scores.float(), run.loss.name)
        note = _note_on_softmax(scores.float(), run.loss.name)
        if ":" in run.loss.name and any(map(_takes_several_workers, strategies)):
            _check_mean(criterion, scores.detach().float(), targets, loss.item())
    loss.backward()
    for strategy in strategies:
        _check_strategy(strategy, model, run.model.label)
    with _blame("models", run.model.label, "optimizer"):
        optimizer.step()
    _try_out_another(run, model, plain)
    _try_out_one(run, build, plain[:1])
    scores = _evaluated(model, plain)
    _check_output(scores, task, plain, "in evaluation")
    _check_state_dict(build, model.state_dict(), plain, scores)
    with models.precision(run):
        try:
            costs = sample_costs.of_a_sample(model, plain, criterion, targets)
            return costs | note | {"is_stacked": stacks.fits(run, model, inputs.shape[1:])}
        except Exception:  # such as of a compiled model
            return note


def _check_strategy(strategy: Entry, model: nn.Module, label: str) -> None:
    """Check that a strategy can train a model, which has its gradients."""
    with _blame("strategies", strategy.label):
        strategy_class = registry.strategies()[strategy.name].load()
        problem = strategy_class.refusal(model, **strategy.options)
        problem = problem or strategy_class.missing_gradient(model, **strategy.options)
        if problem:
            raise ValueError(f"cannot train {label}: it {problem}")


def _check_output(scores: object, task: tasks.Task, inputs: Tensor, when: str) -> None:
    if torch.is_tensor(scores) and not scores.is_floating_point():
        raise ValueError(f"the model's output is {scores.dtype} {when}; expected torch.float32")
    expected = (2, *task.output_shape(tuple(inputs.shape[1:])))
    if not torch.is_tensor(scores) or scores.shape != expected:
        shape = tuple(scores.shape) if torch.is_tensor(scores) else type(scores).__name__
        what = "one for each class or number" if task.target == "fixed" else "as the task requires"
        if not torch.is_tensor(scores):
            what += ": set an option such as `aux_logits: false`, or wrap the model in a module"
        elif shape[0] == 2 and len(shape) == len(expected):
            what += f": many models take a key such as `num_classes: {expected[1]}`"
        raise ValueError(
            f"the model's output for 2 samples is {shape} {when}; expected {expected}, {what}"
        )


def _evaluated(model: nn.Module, inputs: Tensor) -> Any:
    """Return the output of a model in evaluation."""
    model.eval()
    seed_all(0)  # for dropout that stays on in evaluation
    with torch.inference_mode():
        return model(inputs.clone())


def _check_state_dict(
    build: Build, state_dict: dict[str, Any], inputs: Tensor, scores: Tensor
) -> None:
    """Check that a model's outputs depend on its state_dict alone, which is what is saved.

    Args:
        build: builds another one.
        scores: its outputs for the inputs.

    Raises:
        ValueError: two models with the same weights, built with other random numbers, differ.
    """

    def scores_of_another(seed: int) -> Tensor:
        seed_all(seed)
        model = build()
        model.load_state_dict(state_dict)
        return _evaluated(model, inputs)

    are_close = partial(torch.allclose, rtol=1e-3, atol=1e-5, equal_nan=True)
    another = scores_of_another(1)
    # The model has taken steps and may keep more of them than its weights.
    if not (are_close(scores, another) or are_close(another, scores_of_another(2))):
        raise ValueError(
            "with the same state_dict it computes something else each time it is built, so saved "
            "weights would be scored wrongly: it keeps random numbers, or layers, outside of its "
            "state_dict; use self.register_buffer(name, tensor) instead of a tensor as an "
            "attribute, and torch.nn.ModuleList instead of a list"
        )


def _takes_several_workers(strategy: Entry) -> bool:
    return not registry.strategies()[strategy.name].constants.get("one_worker")


def _check_mean(
    criterion: Callable[[Tensor, Tensor], Tensor], scores: Tensor, targets: Tensor, loss: float
) -> None:
    """Check that a loss of the user's is the mean over samples, so that workers can share it."""
    parts = [float(criterion(scores[at : at + 1], targets[at : at + 1])) for at in range(2)]
    if not math.isclose(sum(parts) / 2, loss, rel_tol=1e-4, abs_tol=1e-6):
        raise ValueError(
            f"the loss of two samples is {loss:g}, of each {parts[0]:g} and {parts[1]:g}, so "
            "workers cannot share a batch; use the mean over samples, or strategies of one worker"
        )


def _note_on_softmax(scores: Tensor, loss: str) -> dict[str, str]:
    """Return {"note": a sentence} if the loss takes a second softmax; else {}.

    Args:
        scores: (2, classes).
    """
    is_twice = loss == "CrossEntropyLoss" and scores.dim() == 2 and scores.shape[1] > 1
    if is_twice and (scores >= 0).all() and torch.allclose(scores.sum(dim=1), torch.ones(2)):
        again = "its outputs are probabilities, and cross_entropy takes the softmax again"
        return {"note": f"{again}, so it learns slowly; remove the softmax at its end"}
    return {}


def _check_log_probabilities(scores: Tensor, loss: str) -> None:
    """Check that exp(scores), (2, classes), are probabilities, up to rounding in half precision."""
    sums = scores.logsumexp(dim=1)
    if not torch.allclose(sums, torch.zeros(2), atol=0.05):
        raise ValueError(
            f"{loss} takes log-probabilities, as from torch.nn.LogSoftmax, which the model does "
            "not return; use cross_entropy for scores"
        )


def _scores(model: nn.Module, inputs: Tensor) -> Any:
    """Return the model's output; an error explains which inputs the model was given."""
    try:
        return model(inputs)
    except RuntimeError as error:
        if inputs.is_floating_point() and "indices" in str(error):
            error.add_note(
                "for a network that embeds whole numbers, give the dataset `inputs: tokens`"
            )
        if inputs.is_floating_point():
            raise
        raise ValueError(
            f"{error}; the inputs are tokens, which are whole numbers; use a model that embeds "
            "them, as lstm, text_cnn and transformer do"
        ) from error


def _try_out_another(run: Run, model: nn.Module, inputs: Tensor) -> None:
    """Try a second batch of another size, like the last one of an epoch.

    Raises:
        ValueError: the model keeps something of the first batch that does not fit.
    """
    more = torch.cat([inputs, inputs[:1]])
    try:
        with models.precision(run):
            model(more).float().sum().backward()
    except Exception as error:
        raise ValueError(
            f"a second batch, of 3 samples after 2, fails: {error}; if the model keeps a state "
            "between batches, it has to forget it, or detach and resize it"
        ) from error


def _try_out_one(run: Run, build: Build, sample: Tensor) -> None:
    """Try one sample if a worker's share of a batch may be so small: batch norm cannot train on it.

    Raises:
        ValueError: the model cannot be trained on one sample, and some worker gets no more.
    """
    assert run.batch_size is not None
    if run.batch_size // run.workers > 1:
        return
    model = build()
    model.train()
    try:
        model(sample)
    except ValueError as error:
        raise ValueError(
            f"a batch of {run.batch_size} leaves {run.workers} worker(s) one sample each: {error}"
        ) from None
