"""What is said where no jobs can be submitted."""

import pytest

from allcores_study.watching import slurm


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ([], ["there is no sbatch"]),
        (["sbatch", "squeue"], ["there is no sinfo"]),
        (["sbatch", "sinfo", "squeue"], ["squeue failed: no controller"]),
    ],
)
def test_without_slurm_it_is_told(tmp_path, monkeypatch, programs, said):
    for name in programs:
        (tmp_path / name).write_text("#!/bin/sh\necho no controller >&2; exit 1")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(slurm.unusable()) == said
