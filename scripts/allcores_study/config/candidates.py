"""Selections between the candidates of a sweep, by inner folds, on one rung or several.

A search suggests its candidates in rounds, each by the scores of all earlier rounds. Labels, and so
the paths of runs, are known from the start; values are recorded when they are suggested.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from allcores_study.config.run import Run

# Candidates of a search that are drawn before any is suggested; Optuna's TPE draws as many.
FIRST = 10


@dataclass(frozen=True)
class Search:
    """What suggestions of candidates depend on besides the scores of earlier ones.

    Attributes:
        space: name of each searched key, such as "optimizer.lr" -> its list or range in the config.
        first: label of each candidate of the first round -> {name: value}.
        at_once: how many are suggested in each later round.
        seed: seed of the sampler.
    """

    space: dict[str, list[Any] | dict[str, Any]]
    first: dict[str, dict[str, Any]]
    at_once: int
    seed: int

    @classmethod
    def of(cls, swept: dict[str, Any], labels: list[str]) -> Search | None:
        """Return the Search of candidates by their labels; None: all are known from the start."""
        settings = swept.get(labels[0], {}).get("search")
        if settings is None:
            return None
        first = labels[: max(FIRST, settings["at_once"])]
        return cls(
            settings["space"],
            {label: swept[label]["search"]["values"] for label in first},
            settings["at_once"],
            settings["seed"],
        )


@dataclass(frozen=True)
class Slot:
    """The place of a run before a choice decides which candidate it trains.

    Attributes:
        choice: path of the Selection.
        place: position of its candidate among those kept, from 0.
        fold: fold of its inner run in the next Selection; None: it is the final run.
    """

    choice: str
    place: int
    fold: int | None


@dataclass(frozen=True)
class Selection:
    """A choice between the candidates of a sweep, for one fold.

    Successive halving has one on each rung, between the candidates that the previous one has kept.
    A Search has one on each rung of each round.

    Attributes:
        study: the study that makes it.
        family: the label of the swept model in the config.
        inner: label of each candidate -> paths of its inner runs, whose scores are compared.
        final: label of each candidate -> path of the run that is trained if it is chosen.
        previous: the Selection on the previous rung; None: this is the first.
        keeps: how many candidates go on; on the last rung, 1: its final run is trained.
        next_inner: the inner runs on the next rung, as `inner`; None: this is the last.
        search: the Search that suggests the candidates; None: all are known from the start.
        suggests: labels of the candidates suggested by the scores on this rung, the last one of a
            round.
    """

    study: str
    family: str
    inner: dict[str, list[str]]
    final: dict[str, str]
    previous: Selection | None = None
    keeps: int = 1
    next_inner: dict[str, list[str]] | None = None
    search: Search | None = None
    suggests: tuple[str, ...] = ()

    @functools.cached_property
    def path(self) -> str:
        """The study and the path of a final run, with the family in place of the candidate."""
        candidate, path = next(iter(self.final.items()))
        rung = f"_rung{len(self.rungs)}" if self.next_inner else ""
        return f"{self.study}/{path.replace(f'/{candidate}/', f'/{self.family}/', 1)}{rung}"

    @property
    def rungs(self) -> list[Selection]:
        """The Selections up to this one, the first rung first."""
        rungs = [self]
        while rungs[-1].previous:  # no recursion: a search may have hundreds
            rungs.append(rungs[-1].previous)
        return rungs[::-1]

    @property
    def rung(self) -> int:
        """The number of its rung within its round of a search, from 1."""
        return 1 if self.is_first_of_round else self.previous.rung + 1  # type: ignore[union-attr]

    @property
    def is_first_of_round(self) -> bool:
        return self.previous is None or bool(self.previous.suggests)

    @property
    def suggested_by(self) -> Selection | None:
        """The Selection that suggests its candidates; None: they are known from the start."""
        return self.previous if self.is_first_of_round else self.previous.suggested_by  # type: ignore[union-attr]

    @functools.cached_property
    def slots(self) -> list[Slot]:
        """The Slots of the runs that continue from this choice."""
        if self.next_inner is None:
            return [Slot(self.path, 0, None)]
        folds = range(len(next(iter(self.next_inner.values()))))
        return [Slot(self.path, place, fold) for place in range(self.keeps) for fold in folds]

    def paths_possible(self, slot: Slot) -> dict[str, str]:
        """Return, for each label, the path of the run in a Slot if that candidate is kept there."""
        if slot.fold is None:
            return self.final
        assert self.next_inner is not None
        return {label: paths[slot.fold] for label, paths in self.next_inner.items()}

    def path_in(self, slot: Slot, labels: list[str] | None = None) -> str | None:
        """Return the path of the run in a Slot of this choice; None: fewer were kept.

        Args:
            labels: those that are kept; None: not known yet, so the first candidates stand in.
        """
        paths = self.paths_possible(slot)
        labels = list(paths) if labels is None else labels
        return paths[labels[slot.place]] if slot.place < len(labels) else None

    def paths_after(self, labels: list[str] | None = None) -> list[str]:
        """Return the paths of the runs in all Slots of this choice; labels: as in path_in()."""
        paths = (self.path_in(slot, labels) for slot in self.slots)
        return [path for path in paths if path]


def by_rung(
    slots: Iterable[Slot], selections: dict[str, Selection], runs: dict[str, Run]
) -> Iterable[list[Slot]]:
    """Group Slots by how long their runs train; only Slots of a group may share jobs.

    Along a chain of choices, the runs of each rung train longer than those of the rung before.
    With few epochs, several rungs of a chain may train equally long; a number keeps these apart.
    Each round of a search begins with short runs again, so rounds are groups of their own. Hence a
    choice never waits for a job that waits for that choice. Runs that two studies share are in one
    group, whatever `halving` the studies have.

    Args:
        selections: path -> Selection on the last rung.
        runs: path -> Run.
    """
    # Path of a choice -> what its Slots are grouped by, increasing along the chain.
    place: dict[str, tuple[tuple[int, bool, float], int]] = {}
    for last in selections.values():
        search_round, taken = 0, set()
        for choice in last.rungs:
            search_round += bool(choice.suggests)
            first = choice.path_in(choice.slots[0])
            assert first is not None
            length = search_round, choice.next_inner is None, runs[first].stop_after or math.inf
            number = next(n for n in itertools.count() if (length, n) not in taken)
            taken.add((length, number))
            place[choice.path] = length, number
    groups: dict[Any, list[Slot]] = {}
    for slot in slots:
        groups.setdefault(place[slot.choice], []).append(slot)
    return groups.values()


def overlapping(slots: Iterable[Slot], choices: dict[str, Selection]) -> list[list[Slot]]:
    """Group Slots that may hold the same run, directly or through others.

    Args:
        choices: path -> Selection.

    Returns:
        Lists of Slots; a Slot that shares no run with others is alone in its list.
    """
    # Path of a run -> (paths, Slots) of its group.
    group_of: dict[str, tuple[set[str], list[Slot]]] = {}
    for slot in slots:
        paths, together = set(choices[slot.choice].paths_possible(slot).values()), [slot]
        joined = {id(group): group for group in map(group_of.get, paths) if group}
        for paths_of_group, members in joined.values():
            paths, together = paths | paths_of_group, members + together
        group_of |= dict.fromkeys(paths, (paths, together))
    return list({id(together): together for _, together in group_of.values()}.values())


def of_study(
    name: str, study: dict[str, Any], final: dict[str, Run], swept: dict[str, Any]
) -> tuple[dict[str, Selection], list[str], dict[str, Run]]:
    """Return the Selections of a study and the inner runs that they compare.

    Args:
        name: name of the study.
        study: its entry in the config, with `select` and perhaps `halving`.
        final: path -> Run of every candidate, on the whole training set of every fold.
        swept: as in a config with its sweeps expanded, see schema.SWEPT.

    Returns:
        ({path: Selection on the last rung}, paths of the inner runs on the first rungs, {path: Run}
        of all inner runs).
    """
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in final.values():
        family = swept.get(run.model.label, {"family": run.model.label})["family"]
        groups.setdefault((family, *(run.wildcards | {"model": family}).values()), []).append(run)
    selections: dict[str, Selection] = {}
    first_paths: list[str] = []
    inner_runs: dict[str, Run] = {}
    factor = study.get("halving", math.inf)
    for (family, *_), candidates in groups.items():
        # A model without a sweep leaves nothing to choose.
        folds = study["select"] if candidates[0].model.label != family else 0
        search = Search.of(swept, [run.model.label for run in candidates])
        selection, paths = None, {run.model.label: run.path for run in candidates}
        rungs = list(_rungs(_rounds(candidates, search), folds, factor))
        for (inner, keeps, suggests), after in itertools.zip_longest(rungs, rungs[1:]):
            inner_runs |= {run.path: run for runs in inner.values() for run in runs}
            selection = Selection(
                *(name, family, _paths(inner), paths, selection, keeps),
                next_inner=_paths(after[0]) if after else None,
                search=search,
                suggests=suggests,
            )
        assert selection is not None
        first_paths += itertools.chain(*selection.rungs[0].inner.values())
        selections[selection.path] = selection
    return selections, list(dict.fromkeys(first_paths)), inner_runs


def _paths(inner: dict[str, list[Run]]) -> dict[str, list[str]]:
    return {label: [run.path for run in runs] for label, runs in inner.items()}


def _rounds(candidates: list[Run], search: Search | None) -> list[list[Run]]:
    """Return the candidates by rounds: the scores of each round suggest the next one."""
    if not search:
        return [candidates]
    first = len(search.first)
    later = range(first, len(candidates), search.at_once)
    return [candidates[:first], *(candidates[at : at + search.at_once] for at in later)]


def _rungs(
    rounds: list[list[Run]], folds: int, factor: float
) -> Iterator[tuple[dict[str, list[Run]], int, tuple[str, ...]]]:
    """Yield (label -> inner runs, how many go on, labels suggested next) for each rung in turn."""
    for candidates, next_round in itertools.pairwise([*rounds, []]):
        counts = rung_counts(len(candidates), factor)
        for remaining in reversed(range(len(counts))):
            inner = {run.model.label: _inner(run, folds, factor**remaining) for run in candidates}
            if remaining:
                yield inner, counts[-remaining], ()
            else:
                yield inner, len(next_round) or 1, tuple(run.model.label for run in next_round)


def _inner(run: Run, folds: int, divisor: float) -> list[Run]:
    """Return the inner runs of a candidate, which stop after 1 / divisor of its epochs."""
    stop_after: Any = max(1, run.epochs // divisor) if divisor > 1 else None
    return [
        dataclasses.replace(run, inner_folds=folds, inner_fold=fold, stop_after=stop_after)
        for fold in range(folds)
    ]


def rung_counts(candidates: int, factor: float) -> list[int]:
    """Return how many candidates each rung of successive halving has.

    One in `factor` goes on to the next rung, until there are at most `factor`.

    Jamieson and Talwalkar: Non-stochastic Best Arm Identification and Hyperparameter Optimization,
    AISTATS 2016.
    """
    counts: list[Any] = [candidates]
    while counts[-1] > factor:
        counts.append(-(-counts[-1] // factor))
    return counts
