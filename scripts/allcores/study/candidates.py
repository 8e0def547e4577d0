"""The choices between the candidates of a sweep, made by inner folds, perhaps on rungs."""

import dataclasses
import itertools
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Selection:
    """A choice between the candidates of a sweep, for one fold.

    With successive halving there is one on each rung, between those that the one before has kept.

    Attributes:
        study: in which it is made.
        family: the label in the config of what is swept.
        inner: label of each candidate -> paths of its inner runs, by whose accuracy it is judged.
        final: label of each candidate -> path of the run that is trained if it is chosen.
        before: the Selection on the rung below; None: this is the first.
        keeps: how many candidates go on; those of the last one are retrained.
        above: the inner runs on the rung above, as `inner`; None: this is the last.
    """

    study: str
    family: str
    inner: dict
    final: dict
    before: "Selection | None" = None
    keeps: int = 1
    above: dict | None = None

    @property
    def path(self):
        """The path of a final run with the family in the place of the candidate, in the study."""
        candidate, path = next(iter(self.final.items()))
        rung = f"_rung{len(self.rungs)}" if self.above else ""
        return f"{self.study}/{path.replace(f'/{candidate}/', f'/{self.family}/', 1)}{rung}"

    @property
    def rungs(self):
        """The Selections up to this one, the first one first."""
        return [*(self.before.rungs if self.before else []), self]

    @property
    def first_inner(self):
        """The inner runs of as many candidates as are compared here, for any that may be."""
        count = self.before.keeps if self.before else len(self.inner)
        return dict(itertools.islice(self.inner.items(), count))

    @property
    def going_on(self):
        """Paths of the runs of which some are trained once the choice is made."""
        if self.above is None:
            return list(self.final.values())
        return [path for paths in self.above.values() for path in paths]


def of_study(name, study, final, swept):
    """Of a study: its Selections by path, the paths of the inner runs on their first rungs, and all
    their inner runs by path.

    Args:
        study: as in the config, `select` and perhaps `halving` in it.
        final: path -> Run of every candidate, on the whole training part of every fold.
        swept: as in a config with its sweeps expanded, see grid.SWEPT.
    """
    alike = {}
    for run in final.values():
        family = swept.get(run.model.label, {"family": run.model.label})["family"]
        alike.setdefault((family, *(run.wildcards | {"model": family}).values()), []).append(run)
    selections, first, every, factor = {}, [], {}, study.get("halving", math.inf)
    for (family, *_), candidates in alike.items():
        # Of a model that is not swept over there is nothing to choose from.
        folds = study["select"] if candidates[0].model.label != family else 0
        counts = rung_counts(len(candidates), factor)
        rungs = []
        for left in reversed(range(len(counts))):
            runs = {run.model.label: _inner(run, folds, factor**left) for run in candidates}
            rungs.append({label: [run.path for run in inner] for label, inner in runs.items()})
            every |= {run.path: run for inner in runs.values() for run in inner}
        first += itertools.chain(*rungs[0].values())
        selection, paths = None, {run.model.label: run.path for run in candidates}
        for inner, above, keeps in itertools.zip_longest(rungs, rungs[1:], counts[1:]):
            selection = Selection(name, family, inner, paths, selection, keeps or 1, above)
        selections[selection.path] = selection
    return selections, list(dict.fromkeys(first)), every


def _inner(run, folds, part):
    """The inner runs of a candidate, which stop after one part in `part` of its epochs."""
    stop_after = max(1, run.epochs // part) if part > 1 else None
    return [
        dataclasses.replace(run, inner_folds=folds, inner_fold=fold, stop_after=stop_after)
        for fold in range(folds)
    ]


def rung_counts(candidates, factor):
    """How many candidates there are on each rung of successive halving: of those on each, one in
    `factor` goes on, until there are no more than that many.

    Jamieson and Talwalkar: Non-stochastic Best Arm Identification and Hyperparameter Optimization,
    AISTATS 2016.
    """
    counts = [candidates]
    while counts[-1] > factor:
        counts.append(-(-counts[-1] // factor))
    return counts
