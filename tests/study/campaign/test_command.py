"""`allcores run` leaves to Snakemake what is Snakemake's, and adds only what is missing."""

import os
import shlex
import sys

import pytest
from conftest import ROOT

from allcores.machine import cores, memory
from allcores_study import programs
from allcores_study.campaign import commands

sys.path.append(str(ROOT / "scripts"))

import command


@pytest.fixture
def called(tmp_path, monkeypatch):
    """A function of words: what `allcores run` becomes with them, after -m snakemake -s FILE."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.yaml").write_text("studies: {}\n")
    calls = []
    monkeypatch.setattr(os, "execve", lambda program, words, environment: calls.append(words))

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["allcores", "run", *words])
        command.main()
        assert calls[-1][1:4] == ["-m", "snakemake", "-s"]
        return calls[-1][5:]

    return call


CONFIG = ["--configfile", "mine.yaml"]
ALL = ["--cores", str(cores.allowed())]


@pytest.mark.parametrize(
    ("words", "added"),
    [
        ([], ALL),
        (["-n"], ALL),
        (["--directory", "slurm"], ALL),
        (["--executor", "slurm"], []),
        (["-j1"], []),
        (["-nj1"], []),
        (["--jobs", "1"], []),
        (["--cores=3"], []),
        (["-c", "3"], []),
        (["--executor", "slurm", "--apptainer-args=--nv"], []),
        (["--config", "timeout=5"], ALL),
    ],
)
def test_words_go_on_as_they_are(called, words, added):
    assert called(*CONFIG, *words) == [*added, *CONFIG, *words]


def test_a_profile_of_this_project_is_found_and_one_of_ones_own_comes_first(called, tmp_path):
    ours = str(ROOT / "profiles" / "slurm")
    assert called(*CONFIG, "--profile", "slurm") == [*CONFIG, "--profile", ours]
    assert called(*CONFIG, "--profile=slurm") == [*CONFIG, f"--profile={ours}"]
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "config.yaml").write_text("cores: 5\n")
    assert called(*CONFIG, "--profile", "slurm") == [*CONFIG, "--profile", "slurm"]
    (tmp_path / "slurm" / "config.yaml").write_text("configfile: [mine.yaml]\n")
    assert called("--profile", "slurm") == [*ALL, "--profile", "slurm"]


def test_a_config_that_is_missing_or_damaged_is_answered_in_a_line(called, tmp_path):
    with pytest.raises(SystemExit, match="allcores run: expected --configfile FILE"):
        called("-n")
    with pytest.raises(SystemExit, match="allcores run: Error parsing number of cores"):
        called(*CONFIG, "--cores", "two")
    with pytest.raises(SystemExit, match=r"allcores run: .*No such file.*'nope\.yaml'"):
        called("--configfile", "nope.yaml")
    (tmp_path / "mine.yaml").write_text("a: [\n")
    with pytest.raises(SystemExit, match=r"allcores run: mine\.yaml:2: "):
        called(*CONFIG)


def test_a_job_of_slurm_uses_what_it_was_given(called, monkeypatch):
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1")
    assert called(*CONFIG) == ["--cores", "1", *CONFIG]
    free = memory.free_mb()
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "700")
    assert memory.free_mb() == 700
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "2000")
    assert memory.free_mb() == 2000
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "0")  # all of the node's
    monkeypatch.delenv("SLURM_MEM_PER_CPU")
    assert memory.free_mb() == pytest.approx(free, rel=0.5)


def test_the_command_of_a_report_gives_each_flag_once():
    """Of a flag that is repeated, Snakemake takes the last."""
    said = commands.again(["a.yaml", "b.yaml"], ["x=1", "y=2"], "workflow/Snakefile")
    assert said.endswith("--configfile a.yaml b.yaml --config x=1 y=2")


def test_the_command_of_a_report_starts_this_workflow_from_a_folder_of_another(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(programs.RUN, raising=False)
    monkeypatch.setattr(programs, "snakemake", lambda: "my project/.venv/bin/snakemake")
    ours = ROOT / "workflow" / "Snakefile"

    def words():
        return shlex.split(commands.again(["mine.yaml"], [], str(ours)))

    with_file = ["my project/.venv/bin/snakemake", "-s", os.path.relpath(ours)]
    assert words()[:3] == with_file
    (tmp_path / "Snakefile").touch()
    assert words()[:3] == with_file, "that one is another"
    (tmp_path / "Snakefile").unlink()
    (tmp_path / "Snakefile").symlink_to(ours)
    assert "-s" not in words()
    monkeypatch.chdir(ROOT)
    assert "-s" not in words(), "the project's file includes it"
