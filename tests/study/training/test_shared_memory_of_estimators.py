"""What estimators with several processes leave in shared memory."""

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest
from test_estimators import estimator_run

from allcores_study.config.run import Choice
from allcores_study.training import estimators, experiment


def left_by(*processes):
    """What joblib has in shared memory for these processes; other tests have theirs there."""
    names = [f"-{process}-" for process in processes] + [f"_{process}_" for process in processes]
    files = [file.name for file in experiment.SHARED.iterdir()]
    return [name for name in files if any(one in name for one in names)]


def test_several_processes_leave_nothing_in_shared_memory(laboratory, monkeypatch, tmp_path):
    fit = estimators.FittedEstimator.fit

    def noting(self, *arguments):
        (tmp_path / "rank").write_text(str(os.getpid()))
        fit(self, *arguments)
        assert left_by(os.getpid())  # or the test would show nothing

    monkeypatch.setattr(estimators.FittedEstimator, "fit", noting)
    run = estimator_run(
        Choice("breast_cancer", "breast_cancer", {}),
        "sklearn.ensemble:BaggingClassifier",
        n_estimators=4,
    )
    laboratory.trained(dataclasses.replace(run, threads_per_worker=2))
    assert left_by(os.getpid(), int((tmp_path / "rank").read_text())) == []


def test_what_a_killed_process_shares_is_removed():
    with pytest.raises(ValueError, match="killed"), experiment._private_folder():
        folder = Path(os.environ[experiment.OF_JOBLIB])
        (folder / "joblib_memmapping").mkdir()
        raise ValueError("killed")
    assert not folder.exists() and left_by(os.getpid()) == []
    assert experiment.OF_JOBLIB not in os.environ


def test_what_a_killed_supervisor_left_is_removed_by_the_next():
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = experiment.SHARED / f"estimator_{ended.pid}_joblib"
    left.mkdir()
    with experiment._private_folder():
        assert not left.exists()
