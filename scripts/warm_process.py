"""The warm process of a snakemake invocation: see allcores_study/campaign/warm_start.py."""

from __future__ import annotations

import sys

from allcores.machine import cores
from allcores_study.campaign import warm_start


def of_smoke_tests() -> None:
    """Import what check_models.py and train.py import, and what torch's optimizers do."""
    import pyarrow.parquet  # noqa: F401
    import threadpoolctl  # noqa: F401
    import torch._dynamo  # noqa: F401

    import check_models  # noqa: F401
    import train  # noqa: F401
    from allcores_study.config import registry
    from allcores_study.planning import trials  # noqa: F401
    from allcores_study.stacking import stacks  # noqa: F401

    # These read torch's files, and their results are cached.
    registry.optimizers()
    registry.losses()


def of_all() -> None:
    """Import what prepare_dataset.py, assign_folds.py and report.py do, metrics and estimators."""
    import sklearn.datasets
    import sklearn.ensemble
    import sklearn.model_selection  # noqa: F401

    from allcores_study.config import registry

    for read in (registry.datasets, registry.models, registry.schedules):
        read()
    import assign_folds  # noqa: F401
    import prepare_dataset  # noqa: F401
    import report  # noqa: F401
    from allcores_study.analysis import measures  # noqa: F401
    from allcores_study.serving import predictor  # noqa: F401
    from allcores_study.training import estimators  # noqa: F401


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    cores.set_thread_variables(1)  # each program sets its own
    warm_start.serve(*sys.argv[1:], of_smoke_tests, of_all)  # type: ignore[arg-type]
