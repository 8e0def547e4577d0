"""Smoke-test each kind of run on two samples before any job starts, in a process with torch."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores.files import read_json, write_json
from allcores.machine import cores, lifetime
from allcores_study import programs, yaml_files
from allcores_study.config import checks, registry, sweeps
from allcores_study.config.run import Run, digest
from allcores_study.planning.sizes import Sizes
from allcores_study.records import fingerprint, identity

if TYPE_CHECKING:
    from allcores_study.config.grid import Table

PROGRAM = programs.PROGRAMS / "check_models.py"


def findings(
    config: dict[str, Any],
    table: Table,
    files: Sequence[str | Path],
    cache: str | Path,
    command: Sequence[str | Path],
) -> list[str]:
    """Smoke-test the runs of a grid.Table; return a line for each problem that prevents training.

    Args:
        config: the config of the table, its sweeps expanded.
        files: the config's YAML files; findings give file and line of a problem.
        cache: JSON file of the smoke tests passed and of what a sample took in them; new ones are
            added.
        command: command that starts scripts/check_models.py.
    """
    cached = _cached(cache)
    new = {
        key: trial for key, trial in _trials(table).items() if not _is_known(trial, cached.get(key))
    }
    if not new:
        return []
    limit = {"limit": config["timeout"]}
    answers = dict(zip(new, _try_out([new[key] | limit for key in new], command), strict=False))
    problems = {
        (sweeps.original(config, tuple(answer["place"])), answer["problem"])
        for answer in answers.values()
        if answer["problem"]
    }
    for key, answer in answers.items():
        if answer.get("note"):
            print(f"NOTE: {answer['place'][1]}: {answer['note']}", file=sys.stderr)
        if not answer["problem"]:
            strategies = new[key]["strategies"] + cached.get(key, {}).get("strategies", [])
            known = {key: answer[key] for key in ("counts", "loaded")}
            known["steps"] = new[key]["steps"]
            cached[key] = known | {"strategies": sorted(set(strategies))}
    Path(cache).parent.mkdir(parents=True, exist_ok=True)
    write_json(cache, cached)
    return checks.located(problems, yaml_files.places(files)[0])


def _is_known(trial: dict[str, Any], cached: dict[str, Any] | None) -> bool:
    """Return whether a smoke test has passed, with the user's modules as they are now."""
    return (
        cached is not None
        and set(trial["strategies"]) <= set(cached["strategies"])
        and (trial["steps"] is None or (cached["steps"] or math.inf) <= trial["steps"])
        and not fingerprint.changed(cached["loaded"])
    )


def counts(cache: str | Path) -> dict[str, dict[str, float]]:
    """Return key of each smoke test passed -> what a sample took in it."""
    return {key: trial["counts"] for key, trial in _cached(cache).items()}


def notes_on_bf16(table: Table, cache: str | Path) -> Iterator[str]:
    """Yield a sentence if networks that compute in fp32 may be faster in bf16 on this processor."""
    known = counts(cache)
    labels = {
        run.model.label
        for run in table.runs.values()
        if run.precision == "fp32"
        and (key := trial(run))
        and known.get(key[0], {}).get("has_convolutions")
    }
    if labels and cores.has_bf16():
        yield (
            "this processor computes in bf16, which may be faster for "
            f"{', '.join(sorted(labels))}; "
            "`precision: [fp32, bf16]` in a model's entry compares"
        )


def _cached(cache: str | Path) -> dict[str, Any]:
    try:
        return read_json(cache)
    except (OSError, ValueError):  # none yet, or damaged: it only saves time
        return {}


def _trials(table: Table) -> dict[str, dict[str, Any]]:
    """Return key -> smoke test, for runs of a grid.Table about whose dataset enough is known."""
    trials: dict[str, dict[str, Any]] = {}
    for run in table.runs.values():
        key, request = trial(run) or (None, None)
        if key is None:
            continue
        assert request is not None
        known = trials.setdefault(key, request | {"strategies": [], "steps": None})
        if run.strategy.to_json() not in known["strategies"]:
            known["strategies"].append(run.strategy.to_json())
        if (steps := _steps(run)) is not None:
            known["steps"] = min(steps, known["steps"] or steps)
    return trials


def _steps(run: Run) -> int | None:
    """Return how many steps a Run has; None: that is unknown, or it has none."""
    sizes = Sizes.of(run)
    if sizes is None or run.batch_size is None:
        return None
    return run.epochs * -(-sizes.train // run.batch_size)


def trial(run: Run) -> tuple[str, dict[str, Any]] | None:
    """Return (key, arguments of trials.tried_out() without strategies) for a Run.

    Runs with the same key share one smoke test. None: too little is known about its dataset.
    """
    facts = registry.facts(run.dataset)
    if facts is None:
        return None
    any_run: Any = run  # mypy cannot check fields by names in a dict
    minimal = dataclasses.replace(
        any_run,
        dataset=dataclasses.replace(run.dataset, label="", options={}),
        **dict.fromkeys(("folds", "fold", "inner_folds", "inner_fold", "train_size")),
        **{"seed": 0, "epochs": 1},
        batch_size=run.batch_size and min(2, run.batch_size // run.workers),
        **{"workers": 1, "servers": 0, "nodes": 1, "threads_per_worker": 1},
        **{"crop": 0, "flip": False},
    )
    request = {
        "settings": minimal.to_json(),
        "shape": facts.shape,
        "task": [facts.task, facts.outputs],
        "vocabulary": facts.most_tokens,
    }
    settings = json.loads(minimal.to_json())
    # Strategy and label do not decide whether a model fits, nor does a rate that nothing limits.
    del settings["strategy"], settings["model"]["label"]
    if not run.is_estimator and "floor" not in run.schedule.options:
        del settings["optimizer"]["options"]["lr"]
    parts = [settings, *(request[key] for key in ("shape", "task", "vocabulary"))]
    parts += [fingerprint.of_smoke_test(run), identity.version_of_torch()]
    return digest(json.dumps(parts)), request


def _try_out(trials: list[dict[str, Any]], command: Sequence[str | Path]) -> list[dict[str, Any]]:
    """Return the answers to smoke tests, up to the one at which their program ended."""
    with tempfile.TemporaryFile("w+") as request:  # which a program that starts over reads again
        json.dump(trials, request)
        request.seek(0)
        process = subprocess.run(
            list(map(str, command)), stdin=request, text=True, stdout=subprocess.PIPE
        )
    if -process.returncode in lifetime.signals_to_stop():
        sys.exit(128 - process.returncode)
    answers = [json.loads(line) for line in process.stdout.splitlines()]
    if len(answers) < len(trials):
        run = Run.from_json(trials[len(answers)]["settings"])
        how = lifetime.how_it_ended(process.returncode)
        problem = f"in its smoke test, {Path(PROGRAM).name} {how}"
        answers.append({"problem": problem, "place": ("models", run.model.label)})
    return answers
