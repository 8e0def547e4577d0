"""Choices between the candidates of a sweep, by inner folds, perhaps on several rungs."""

import dataclasses
import itertools
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Selection:
    """A choice between the candidates of a sweep, for one fold.

    With successive halving there is one on each rung, between the candidates that the previous
    one has kept.

    Attributes:
        study: the study that makes it.
        family: the label of the swept model in the config.
        inner: label of each candidate -> paths of its inner runs, by whose scores it is judged.
        final: label of each candidate -> path of the run that is trained if it is chosen.
        previous: the Selection on the previous rung; None: this is the first.
        keeps: how many candidates go on; on the last rung, 1: its final run is trained.
        next_inner: the inner runs on the next rung, as `inner`; None: this is the last.
    """

    study: str
    family: str
    inner: dict
    final: dict
    previous: "Selection | None" = None
    keeps: int = 1
    next_inner: dict | None = None

    @property
    def path(self):
        """The study and the path of a final run, with the family instead of the candidate."""
        candidate, path = next(iter(self.final.items()))
        rung = f"_rung{len(self.rungs)}" if self.next_inner else ""
        return f"{self.study}/{path.replace(f'/{candidate}/', f'/{self.family}/', 1)}{rung}"

    @property
    def rungs(self):
        """The Selections up to this one, the first rung first."""
        return [*(self.previous.rungs if self.previous else []), self]

    @property
    def stand_ins(self):
        """As `inner`, of the first candidates: as many as will be compared on this rung."""
        count = self.previous.keeps if self.previous else len(self.inner)
        return dict(itertools.islice(self.inner.items(), count))

    @property
    def unlocked_paths(self):
        """Paths of the runs some of which are trained once the choice is made."""
        if self.next_inner is None:
            return list(self.final.values())
        return [path for paths in self.next_inner.values() for path in paths]


def of_study(name, study, final, swept):
    """The Selections of a study, and the inner runs that they compare.

    Args:
        name: of the study.
        study: its entry in the config, with `select` and perhaps `halving`.
        final: path -> Run of every candidate, on the whole training part of every fold.
        swept: as in a config with its sweeps expanded, see schema.SWEPT.

    Returns:
        ({path: Selection on the last rung}, paths of the inner runs on the first rungs, {path: Run}
        of all inner runs).
    """
    groups = {}
    for run in final.values():
        family = swept.get(run.model.label, {"family": run.model.label})["family"]
        groups.setdefault((family, *(run.wildcards | {"model": family}).values()), []).append(run)
    selections, first_paths, inner_runs, factor = {}, [], {}, study.get("halving", math.inf)
    for (family, *_), candidates in groups.items():
        # A model that is not swept over leaves nothing to choose.
        folds = study["select"] if candidates[0].model.label != family else 0
        counts = rung_counts(len(candidates), factor)
        rungs = []
        for remaining in reversed(range(len(counts))):
            runs = {run.model.label: _inner(run, folds, factor**remaining) for run in candidates}
            rungs.append({label: [run.path for run in inner] for label, inner in runs.items()})
            inner_runs |= {run.path: run for inner in runs.values() for run in inner}
        first_paths += itertools.chain(*rungs[0].values())
        selection, paths = None, {run.model.label: run.path for run in candidates}
        for inner, next_inner, keeps in itertools.zip_longest(rungs, rungs[1:], counts[1:]):
            selection = Selection(name, family, inner, paths, selection, keeps or 1, next_inner)
        selections[selection.path] = selection
    return selections, list(dict.fromkeys(first_paths)), inner_runs


def _inner(run, folds, divisor):
    """The inner runs of a candidate, which stop after 1 / divisor of its epochs."""
    stop_after = max(1, run.epochs // divisor) if divisor > 1 else None
    return [
        dataclasses.replace(run, inner_folds=folds, inner_fold=fold, stop_after=stop_after)
        for fold in range(folds)
    ]


def rung_counts(candidates, factor):
    """How many candidates there are on each rung of successive halving.

    One in `factor` goes on to the next rung, until there are at most `factor`.

    Jamieson and Talwalkar: Non-stochastic Best Arm Identification and Hyperparameter Optimization,
    AISTATS 2016.
    """
    counts = [candidates]
    while counts[-1] > factor:
        counts.append(-(-counts[-1] // factor))
    return counts
