"""Search for good candidates: Optuna's TPE suggests them from the scores of earlier ones.

Each suggestion is recorded with the choice that it follows from, and is then part of what
identifies a run. A sweep knows the labels of all candidates from the start; their values come from
these records.

Bergstra, Bardenet, Bengio and Kegl: Algorithms for Hyper-Parameter Optimization, NeurIPS 2011.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from allcores_study.config import grid, ranges, sweeps
from allcores_study.config.run import digest

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import TrialState

    from allcores_study.config.candidates import Search, Selection
    from allcores_study.records.results_folder import ResultsFolder

# Repeats of the sampler in a round before others are drawn: it cannot exclude known candidates.
MOST_REPEATS = 100


def table(config: dict[str, Any], folder: ResultsFolder) -> grid.Table:
    """Return the table of an expanded config, with the values suggested so far."""
    table = grid.expand(config)
    for choice in table.choices.values():
        fill_in(config, table, choice, folder)
    return table


def fill_in(
    config: dict[str, Any], table: grid.Table, choice: Selection, folder: ResultsFolder
) -> None:
    """Fill the suggested values into the runs that a selection compares."""
    if not choice.suggested_by:
        return
    recipe = grid.recipe_of(config)
    suggested = folder.suggested(choice.suggested_by)
    for label in suggested.keys() & choice.inner.keys():
        _, entry = sweeps.candidate(config, choice.family, suggested[label])
        for path in (*choice.inner[label], choice.final[label]):
            run = table.runs[path]
            settings = grid.training(label, entry, run.dataset, recipe)
            table.runs[path] = dataclasses.replace(run, **settings)


def suggest(
    search: Search, candidates: Iterable[dict[str, Any]], sign: int, count: int
) -> list[dict[str, Any]]:
    """Suggest the values {name: value} of new candidates.

    Args:
        search: the space and the seed.
        candidates: entries of all candidates so far, in order; see selection.choose_in_search().
        sign: 1 if larger scores are better, else -1.
        count: how many.
    """
    import optuna  # only now: a choice between known candidates does without

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    candidates = list(candidates)
    axes = {name: ranges.read(found) for name, found in sorted(search.space.items())}
    coded = {name: _Coded.of(axis, optuna.distributions) for name, axis in axes.items()}
    distributions = {name: code.distribution for name, code in coded.items()}
    # A new sampler for each round, so that only what is recorded decides.
    seed = int(digest(json.dumps([search.seed, len(candidates)])), 16)
    sampler = optuna.samplers.TPESampler(multivariate=True, constant_liar=True, seed=seed)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for entry in candidates:
        params = {name: coded[name].encode(value) for name, value in entry["values"].items()}
        told = _told(entry, sign, optuna.trial.TrialState)
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=distributions, **told)
        )
    tried = {_key(entry["values"]) for entry in candidates}
    new = []
    for _ in range(count + MOST_REPEATS):
        params = study.ask(distributions).params
        values = {name: coded[name].decode(value) for name, value in params.items()}
        if _key(values) not in tried:
            new.append(values)
            tried.add(_key(values))
        if len(new) == count:
            break
    # Around the best candidates, the space may be used up.
    drawn = ranges.sobol(list(axes.values()), len(tried) + count - len(new), search.seed)
    others = [dict(zip(axes, values, strict=True)) for values in drawn]
    others = [values for values in others if _key(values) not in tried]
    return new + others[: count - len(new)]


def _told(entry: dict[str, Any], sign: int, states: type[TrialState]) -> dict[str, Any]:
    """Return a candidate's score in Optuna's terms.

    A pruned candidate has its score after as many epochs. One that diverged is worse than any.
    """
    if entry["mean"] is None:
        return {"state": states.PRUNED}
    if entry["pruned"]:
        return {
            "state": states.PRUNED,
            "intermediate_values": {entry["epochs"]: sign * entry["mean"]},
        }
    return {"state": states.COMPLETE, "value": sign * entry["mean"]}


def _key(values: dict[str, Any]) -> str:
    return json.dumps(values, sort_keys=True)


@dataclasses.dataclass(frozen=True)
class _Coded:
    """A key as Optuna sees it.

    Attributes:
        distribution: Optuna's.
        encode: turns a value of the config into Optuna's.
        decode: the reverse.
    """

    distribution: BaseDistribution
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]

    @classmethod
    def of(cls, axis: ranges.Values | ranges.Range, distributions: ModuleType) -> _Coded:
        """Encode a list as a choice, a continuous range as numbers, another by its positions.

        Args:
            axis: the values of a key.
            distributions: Optuna's module.
        """
        if isinstance(axis, ranges.Values):
            places = {json.dumps(value): place for place, value in enumerate(axis.listed)}
            return cls(
                distributions.CategoricalDistribution(list(range(axis.count))),
                lambda value: places[json.dumps(value)],
                lambda place: axis.listed[place],
            )
        if axis.is_continuous:
            ends = distributions.FloatDistribution(axis.least, axis.most, log=axis.is_log)
            return cls(ends, float, axis.rounded)
        if axis.is_log:
            ends = distributions.IntDistribution(axis.least, axis.most, log=True)
            return cls(ends, int, int)
        numbers = distributions.IntDistribution(0, axis.count - 1)
        return cls(numbers, axis.number_of, axis.numbered)
