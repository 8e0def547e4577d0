"""How much data a run has, known before it is prepared. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from allcores_study.config import registry

if TYPE_CHECKING:
    from allcores_study.config.run import Run


@dataclass(frozen=True)
class Sizes:
    """The numbers of samples that a run trains on and is scored on."""

    train: int
    held_out: int

    @classmethod
    def of(cls, run: Run) -> Sizes | None:
        """Return the sizes of a Run; None: its dataset is not known yet."""
        facts = registry.facts(run.dataset)
        if facts is None:
            return None
        train, test, is_ordered = facts.train, facts.test, facts.times is not None
        held_out = train if run.final else test
        for folds, fold in ((run.folds, run.fold), (run.inner_folds, run.inner_fold)):
            if folds is not None:
                held_out = round(train / (folds + is_ordered))
                train = held_out * (fold + 1) if is_ordered else train - held_out  # type: ignore[operator]
        train = min(train, run.train_size or train)
        return cls(round(train * (1 - (run.validation or 0))), held_out)
