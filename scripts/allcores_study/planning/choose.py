"""Choose the setups of studies with `auto`: those with which they end soonest.

A setup is how a model is trained: strategy, workers, servers and threads. The number of runs
decides whether they should be narrow or wide: 200 runs on 48 cores take one core each, ten runs
take four each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores.files import read_json, write_json
from allcores.loop import named
from allcores_study import programs
from allcores_study.config import grid, registry, schema
from allcores_study.config.run import AUTO, digest
from allcores_study.planning import plan

if TYPE_CHECKING:
    from allcores_study.config.grid import Table

    Setup = dict[str, Any]
    Setups = dict[tuple[str, str], Setup]  # (dataset, model) -> setup
    Nested = dict[str, dict[str, Setup]]  # dataset -> model -> setup

PROGRAM = programs.PROGRAMS / "plan.py"
FILE = "chosen.json"  # in a plan
# Strategies with this `equals_serial` end with the weights of the reference. They are candidates,
# beside the reference itself.
PROMISE = "always"
# A simpler setup wins if the study ends at most this share later: predictions are no better.
TOLERANCE = 0.02
REFERENCE = schema.defaults("studies")["strategies"][0]


def studies_of(config: dict[str, Any]) -> list[str]:
    """Return the names of the studies whose setups are to be chosen."""
    studies = config["studies"].items()
    return [name for name, study in studies if AUTO in study.get("strategies", [])]


def with_saved(
    config: dict[str, Any], file: str | Path, available: int | None
) -> dict[str, Any] | None:
    """Return the config with the setups chosen before; None: they are for other settings or cores.

    Args:
        file: written by choose().
        available: number of cores of the invocation; None: those of a cluster, not compared.
    """
    try:
        return _with_setups(
            config, {name: _saved(config, name, file, available) for name in studies_of(config)}
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _saved(config: dict[str, Any], name: str, file: str | Path, available: int | None) -> Nested:
    """Return the setups in a file for a study.

    Raises:
        OSError, ValueError, KeyError, TypeError: there are none that still fit.
    """
    saved = read_json(file)[name]
    if saved["settings"] != _settings(config, name) or (available and saved["cores"] > available):
        raise ValueError("it is for other settings, or for more cores")
    return saved["ways"]


def with_reference(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config with the reference in place of setups still to be chosen.

    That is enough to count the runs.
    """
    setup = _setup(config, REFERENCE, 1)
    setups = {
        name: _nested(dict.fromkeys(_parts(config["studies"][name]), setup))
        for name in studies_of(config)
    }
    return _with_setups(config, setups)


def choose(
    config: dict[str, Any], planner: plan.Planner, available: int, file: str | Path
) -> dict[str, Any]:
    """Return the config with a setup for each dataset and model of its studies with `auto`.

    Args:
        planner: measures what is not known yet.
        available: number of cores of the invocation.
        file: JSON file for the chosen setups.
    """
    chosen = {}
    for name in studies_of(config):
        try:
            chosen[name] = read_json(file)[name]
            _saved(config, name, file, available)
        except (OSError, ValueError, KeyError, TypeError):
            setups = _best_setups(config, name, planner, available)
            chosen[name] = {
                "settings": _settings(config, name),
                "cores": available,
                "ways": setups,
            }
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    write_json(file, chosen)
    return with_saved(config, file, available)  # type: ignore[return-value]


def report_lines(config: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each dataset and model whose setup was chosen."""
    for name in studies_of(config):
        for dataset, of_models in config["studies"][name][grid.CHOSEN].items():
            for model, setup in of_models.items():
                servers = f" + {setup['servers']} servers" if setup["servers"] else ""
                yield (
                    f"{name}: auto chose {setup['strategy']} for {model} on {dataset}: "
                    f"{setup['workers']} workers{servers} x {setup['threads']} threads"
                )


def _with_setups(config: dict[str, Any], setups: dict[str, Nested]) -> dict[str, Any]:
    """Return the config with setups: study -> dataset -> model -> setup."""
    studies = {
        name: study | ({grid.CHOSEN: setups[name]} if name in setups else {})
        for name, study in config["studies"].items()
    }
    return config | {"studies": studies}


def _settings(config: dict[str, Any], name: str) -> str:
    """Return a digest of the settings that, with the machine, decide which setup is best."""
    study = config["studies"][name]
    parts: dict[str, Any] = {"recipe": [config.get(key) for key in grid.RECIPE]}
    for section in ("models", "datasets"):
        entries = config.get(section) or {}
        parts |= {section: {label: entries.get(label) for label in study[section]}}
    return digest(json.dumps([parts, study], sort_keys=True))


def _best_setups(
    config: dict[str, Any], name: str, planner: plan.Planner, available: int
) -> Nested:
    """Return dataset -> model -> the setup with which the study ends soonest.

    Each model in turn, twice over, gets the setup that is best given those of the others.
    """
    study = config["studies"][name]
    only = config | {"studies": {name: study}}
    parts = _parts(study)

    def table_of(setups: Setups) -> Table:
        return grid.expand(_with_setups(only, {name: _nested(setups)})).to_plan()

    def seconds(setups: Setups) -> float:
        table = table_of(setups)
        return plan.pack(planner.of(table), table, available, planner.memory)[0]

    setups = {part: _setup(config, REFERENCE, 1) for part in parts}
    runs = len(table_of(setups).runs) // len(parts)
    candidates = {
        (dataset, model): list(_candidates(config, model, available, runs))
        for dataset, model in parts
    }
    for part in parts:
        candidates[part] = list(_trainable(candidates[part], part, setups, table_of, planner))
    for _ in range(2 if len(parts) > 1 else 1):
        for part in parts:
            ends = {i: seconds(setups | {part: setup}) for i, setup in enumerate(candidates[part])}
            soon = min(ends.values()) * (1 + TOLERANCE)
            first = next(i for i, end in ends.items() if end <= soon)
            setups |= {part: candidates[part][first]}
    return _nested(setups)


def _parts(study: dict[str, Any]) -> list[tuple[str, str]]:
    return [(dataset, model) for dataset in study["datasets"] for model in study["models"]]


def _trainable(
    candidates: list[Setup],
    part: tuple[str, str],
    setups: Setups,
    table_of: Callable[[Setups], Table],
    planner: plan.Planner,
) -> Iterator[Setup]:
    """Yield the candidates that can be trained, once they are measured.

    Raises:
        ValueError: none can.
    """
    problem = "no strategy can use these cores with this batch size"
    count = 0
    for setup in candidates:
        try:
            planner.measure(table_of(setups | {part: setup}))
            count += 1
            yield setup
        except ValueError as error:  # such as batch norm with one image per worker
            problem = str(error)
    if not count:
        raise ValueError(f"{part[1]} on {part[0]}: {problem}")


def _nested(setups: Setups) -> Nested:
    """Return {(dataset, model): setup} as dataset -> model -> setup."""
    nested: Nested = {dataset: {} for dataset, _ in setups}
    for (dataset, model), setup in setups.items():
        nested[dataset][model] = setup
    return nested


def _candidates(config: dict[str, Any], model: str, available: int, runs: int) -> Iterator[Setup]:
    """Yield the setups that may be best for a model, the simplest first.

    Args:
        runs: how many runs the model has.
    """
    batch_size = config["models"][model]["batch_size"]
    optimizer = config["models"][model]["optimizer"]["name"]
    needs_tensors = (
        registry.canonical(optimizer, registry.optimizers()) in named.WHOLE_TENSOR_OPTIMIZERS
    )
    for label in _promising():
        strategy = registry.strategies()[grid.choice(config, "strategies", label).name]
        if needs_tensors and strategy.constants.get("element_wise"):
            continue
        for width in _widths(available, runs):
            setup = _setup(config, label, width)
            is_alone = setup["workers"] == setup["threads"] == 1
            # With a single worker, every strategy does what the reference does.
            if 1 <= setup["workers"] <= batch_size and (not is_alone or label == REFERENCE):
                yield setup


def _promising() -> list[str]:
    """Return the reference, and the built-in strategies that end with its weights."""
    strategies = registry.strategies().items()
    return [REFERENCE, *(n for n, c in strategies if c.constants.get("equals_serial") == PROMISE)]


def _widths(available: int, runs: int) -> list[int]:
    """Return numbers of cores that a run may take: powers of two, all, and an equal share."""
    powers = {1 << power for power in range(available.bit_length())}
    return sorted({*powers, available, max(1, available // runs)})


def _setup(config: dict[str, Any], label: str, cores: int) -> Setup:
    """Return the setup in which a strategy uses so many cores: workers and servers, or threads."""
    study = schema.defaults("studies") | {"strategies": [label], "cores": [cores]}
    _, _, workers, servers, threads = next(iter(grid.layouts(config, study)))
    return {"strategy": label, "workers": workers, "servers": servers, "threads": threads}
