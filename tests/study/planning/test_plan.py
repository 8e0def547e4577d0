"""What a study is expected to take, before anything is trained."""

import signal
import subprocess
import sys

import patience
import pytest
from conftest import ENVIRONMENT, OF_PROGRAMS, ROOT, warm
from project import RUNS, copy

from allcores_study.planning import packing, plan


def job(cores, seconds, memory=1, after=0.0):
    return packing.QueuedJob(cores, memory, seconds, after)


@pytest.mark.parametrize(
    ("jobs", "on", "makespan"),
    [
        ([], 2, 0),
        ([job(1, 10)], 2, 10),
        ([job(1, 10)] * 3, 2, 20),
        ([job(2, 10), job(1, 10), job(1, 10)], 2, 20),
        # The wide one has to wait, a later one fills in.
        ([job(1, 10), job(2, 5), job(1, 4)], 2, 15),
        ([job(4, 10)], 2, 10),
        # Cores that are free at the same time are free for a wide one.
        ([job(1, 10)] * 3 + [job(2, 10), job(1, 5), job(1, 5)], 3, 20),
    ],
)
def test_jobs_are_packed_as_snakemake_does(jobs, on, makespan):
    assert packing.pack(jobs, on)[0] == pytest.approx(makespan)


def test_jobs_are_packed_by_memory_too():
    jobs = [job(1, 10, memory=60)] * 3
    assert packing.pack(jobs, 4, memory=130) == pytest.approx((20, 120))
    # One gets all; what it claims is told.
    assert packing.pack(jobs, 4, memory=50) == pytest.approx((30, 60))
    jobs = [job(1, 10, after=1.0)] * 3
    assert packing.pack(jobs, 4)[0] == pytest.approx(10)
    assert packing.pack(jobs, 1)[0] == pytest.approx(32)


def test_cores_that_stay_idle_are_told():
    made = plan.Plan("mine", 4, 90.0, 0.1, 1000.0, at_once=4)
    assert len(list(made.lines(4))) == len(list(made.lines(7))) == 1
    assert "44 of 48 cores stay idle; runs of 12 times as many" in list(made.lines(48))[1]


def command(project, *arguments):
    return [ROOT / "scripts" / "plan.py", "--configfile", project.config, *arguments]


def call(project, *arguments, expect=0):
    forked = [*warm(OF_PROGRAMS, command(project)[0]), *command(project, *arguments)[1:]]
    run = subprocess.run(
        list(map(str, forked)), cwd=project.folder, env=ENVIRONMENT, text=True, capture_output=True
    )
    assert run.returncode == expect, run.stdout + run.stderr
    return run.stdout, run.stderr


def test_a_plan_says_what_each_study_takes_and_trains_nothing(tmp_path):
    project = copy(tmp_path)
    project.edit("mine.yaml", "models: [lenet, mlp]", "models: [mlp]")
    project.configure(lambda config: config["studies"].update(second=config["studies"]["first"]))
    said, _ = call(project, "--cores", 300)
    lines = [line for line in said.splitlines() if not line.startswith((" ", "NOTE"))]
    assert [line.partition(",")[0] for line in lines[:3]] == [
        *(f"{name}: {RUNS // 2} runs" for name in ("first", "second", "all together"))
    ]
    assert "on 300 cores" in lines[0] and "MB of memory" in lines[0]
    assert "of 300 cores stay idle" in said
    assert not list(tmp_path.rglob("metrics.json"))
    assert call(project, "--cores", 300)[0] == said


def test_what_cannot_be_planned_is_said(tmp_path):
    project = copy(tmp_path)
    project.edit("mine.yaml", "models: [lenet, mlp]", "models: [mlp]")
    _, said = call(project, "--cores", 0, expect=1)
    assert "--cores: found 0; expected a number from 1" in said
    project.edit("mine.yaml", "hidden: [16]", "hidden: [16], batch_sizes: 3")
    _, said = call(project, expect=1)
    assert "mine.yaml:4: models.mlp.batch_sizes: unknown key" in said
    project.edit("mine.yaml", ", batch_sizes: 3", "")
    project.edit("mine.yaml", "lr: 0.05", "lr: 0.05, momentum: [-1, 0.9]")
    _, said = call(project, "--cores", 2, expect=1)
    assert "mine.yaml:4: models.mlp.optimizer: Invalid momentum value: -1" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_plan_that_is_ended_says_nothing_of_its_own_code(tmp_path, number):
    project = copy(tmp_path)
    (tmp_path / "slow.py").write_text(
        "import time\n\n\ndef Net(classes):\n    open('begun', 'w').close()\n    time.sleep(1000)\n"
    )
    project.configure(lambda config: config["models"]["mlp"].update({"import": "slow:Net"}))
    project.configure(lambda config: config["models"]["mlp"].pop("hidden"))
    process = subprocess.Popen(
        list(map(str, [sys.executable, *command(project)])),
        cwd=tmp_path,
        env=ENVIRONMENT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    patience.wait_for((tmp_path / "begun").exists)
    process.send_signal(number)
    assert "Traceback" not in patience.ended(process, 60)
    assert process.returncode != 0


def test_reading_a_workflow_starts_nothing(tmp_path):
    project = copy(tmp_path)
    project.configure(lambda config: config["studies"]["first"].update(strategies=["serial"]))
    assert project.planned()["train"] == RUNS / 2
    project.call("--lint")
    project.call("--unlock")
    assert not (tmp_path / "results").exists()
