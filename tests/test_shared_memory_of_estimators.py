"""What estimators with several processes leave in shared memory."""

import dataclasses
import os
from pathlib import Path

import pytest
from test_estimators import estimator_run

from allcores.study.run import Choice
from allcores.training import experiment


def left_by_joblib():
    """What joblib, its processes and runs have in shared memory."""
    names = ("joblib_", "sem.loky", "sem.mp", "allcores_")
    return {file.name for file in Path("/dev/shm").iterdir() if file.name.startswith(names)}


def test_several_processes_leave_nothing_in_shared_memory(laboratory):
    before = left_by_joblib()
    run = estimator_run(
        Choice("breast_cancer", "breast_cancer", {}),
        "sklearn.ensemble:BaggingClassifier",
        n_estimators=4,
    )
    laboratory.conduct(dataclasses.replace(run, threads_per_worker=2))
    assert left_by_joblib() <= before


def test_what_a_killed_process_shares_is_removed():
    before = left_by_joblib()
    with pytest.raises(ValueError, match="killed"), experiment._private_folder():
        folder = Path(os.environ[experiment.OF_JOBLIB])
        (folder / "joblib_memmapping").mkdir()
        raise ValueError("killed")
    assert not folder.exists() and left_by_joblib() == before
    assert experiment.OF_JOBLIB not in os.environ
