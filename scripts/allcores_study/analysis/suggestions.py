"""Search for good candidates: Optuna's TPE suggests them, by the scores of earlier ones.

Each suggestion is written down with the choice that it follows from, and is then part of what
identifies a run: sweeps know the labels of all candidates, and a label gets its values from there.

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

# How often a sampler may repeat itself in a round, before others are drawn: it knows no "tried".
MOST_REPEATS = 100


def table(config: dict[str, Any], folder: ResultsFolder) -> grid.Table:
    """The grid.Table of an expanded config, with the values that are suggested so far.

    Args:
        folder: the results_folder.ResultsFolder.
    """
    table = grid.expand(config)
    for choice in table.choices.values():
        fill_in(config, table, choice, folder)
    return table


def fill_in(
    config: dict[str, Any], table: grid.Table, choice: Selection, folder: ResultsFolder
) -> None:
    """Give the runs of a grid.Table that a candidates.Selection compares their suggested values."""
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
    """Values of new candidates, none of which has been tried: a list of {name: value}.

    Args:
        search: candidates.Search.
        candidates: entries of all so far, in their order, see selection.choose_in_search().
        sign: 1 if larger scores are better, else -1.
        count: how many.
    """
    import optuna  # which a choice between known candidates does without

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    candidates = list(candidates)
    axes = {name: ranges.read(found) for name, found in sorted(search.space.items())}
    coded = {name: _Coded.of(axis, optuna.distributions) for name, axis in axes.items()}
    distributions = {name: code.distribution for name, code in coded.items()}
    # Made anew for each round, so that nothing but what is written down decides.
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
    # Around the best ones the space may be used up.
    drawn = ranges.sobol(list(axes.values()), len(tried) + count - len(new), search.seed)
    others = [dict(zip(axes, values, strict=True)) for values in drawn]
    others = [values for values in others if _key(values) not in tried]
    return new + others[: count - len(new)]


def _told(entry: dict[str, Any], sign: int, states: type[TrialState]) -> dict[str, Any]:
    """A candidate's score as Optuna is told it: of a pruned one it takes the score after as many
    epochs; one that diverged counts as worse than any."""
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
        encode: function of a value of the config: Optuna's; decode: the reverse.
    """

    distribution: BaseDistribution
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]

    @classmethod
    def of(cls, axis: ranges.Values | ranges.Range, distributions: ModuleType) -> _Coded:
        """A list is a choice, a range without gaps numbers, another the numbers of its values.

        Args:
            axis: ranges.Values or ranges.Range.
            distributions: the module of Optuna.
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
