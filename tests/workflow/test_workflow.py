"""The workflow as its users call it: a miniature study from end to end, and what reruns when."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pandas as pd
import patience
import psutil
import pytest
import yaml
from conftest import ENVIRONMENT, ROOT
from patience import wait_for
from project import MINIATURE, RUNS, Project, copy, miniature, unexplained_columns
from test_strategies import alive


@pytest.fixture(scope="module")
def finished():
    return miniature()


@pytest.fixture
def project(finished, tmp_path):
    """A copy of the finished study that a test may change; it is also in another place."""
    return finished.copied(tmp_path / "moved")


def test_the_study_ends_with_tables_figures_and_report(finished):
    study = finished.results / "studies" / "first"
    table = pd.read_csv(study / "accuracy_table.csv")
    assert len(table) == 4
    assert set(table["runs"]) == {2}
    assert len(pd.read_csv(study / "runs.csv")) == RUNS
    assert len(pd.read_csv(study / "epochs.csv")) == 2 * RUNS
    speed = pd.read_csv(study / "speed_table.csv")
    assert speed.loc[speed["strategy"] == "serial", "speedup"].eq(1).all()
    for name in ("accuracy", "confusion", "probabilities", "loss", "speedup"):
        assert (study / f"{name}_figure.png").stat().st_size > 5000
        assert (study / f"{name}_figure.svg").read_text().startswith("<?xml")
    assert_is_self_contained((study / "report.html").read_text())
    report = (finished.folder / "results" / "report.html").read_text()
    assert not re.search(r'(src|href)="https?://', report), "it opens offline"
    assert "studies/first/report.html" in report
    said = (finished.folder / "said").read_text()
    assert "8 runs trained, 0 of them diverged; 0 missing" in said
    assert "Finished jobid" not in said, "that is in Snakemake's own log"
    assert not list((finished.results / "checkpoints").rglob("*.*"))
    assert unexplained_columns(finished.results) == []


def assert_is_self_contained(page):
    """The page of a study: everything is in it, once."""
    assert not re.search(r"""(src|href)=["'](?!#|data:)|url\((?!#)|@import""", page)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', page)) <= set(ids)
    # What was trained, the answer, figures, and then the rest.
    order = "1 seed: 8 runs;", "For many runs, ", "scored best", 'id="speedup_figure"', ">Methods<"
    found = [page.index(part) for part in order]
    assert found == sorted(found)
    assert page.count("<svg") == page.count("<figcaption>") == 7
    methods = page.partition(">Methods<")[2]
    assert "<td>mlp, hidden [16], SGD with learning rate 0.05, batches of 16, 2 epochs" in methods
    assert "stratified 2-fold cross-validation; 30 training samples, 30 test samples" in methods
    assert "snakemake --cores all --configfile" in methods
    assert "mine.yaml</pre>" in methods


def test_folds_are_the_same_for_every_model_and_strategy(finished):
    paths = (finished.results / "runs").rglob("metrics.json")
    metrics = [json.loads(path.read_text()) for path in paths]
    assert len(metrics) == RUNS
    for fold in range(2):
        of_fold = [m for m in metrics if m["settings"]["fold"] == fold]
        assert len({m["held_out_samples"] for m in of_fold}) == 1
        rows = {tuple(map(sum, m["confusion"])) for m in of_fold}
        assert rows == {(10, 10, 10)}


def test_a_hyperparameter_reruns_that_model_and_the_aggregates(project):
    project.edit("mine.yaml", "lr: 0.003", "lr: 0.004")
    planned = project.planned()
    assert planned["train"] == RUNS / 2
    assert planned["report_first"] == 1
    assert "prepare_dataset" not in planned


PACKAGES = "scripts/"


@pytest.mark.parametrize(
    ("path", "old", "new", "runs"),
    [
        (
            f"{PACKAGES}allcores/strategies/ddp.py",
            "bucket_mb: float = 25",
            "bucket_mb: float = 26",
            RUNS / 2,
        ),
        (f"{PACKAGES}allcores_study/training/loop.py", "The training loop", "The loop", 0),
        ("workflow/rules/train.smk", "exec {params", "exec  {params", 0),
    ],
    ids=lambda value: value.removeprefix(PACKAGES) if isinstance(value, str) else None,
)
def test_an_edit_reruns_what_it_can_change(project, path, old, new, runs):
    project.edit(path, old, new)
    assert project.trains() == runs


def test_an_edited_plot_is_plotted_again(project):
    project.edit("scripts/allcores_study/analysis/figures/loss.py", "ms=4", "ms=5")
    assert project.planned() == {"report_first": 1, "all": 1, "total": 2}


def test_other_cores_comments_and_fresh_file_times_rerun_nothing(project):
    config = yaml.safe_load(project.config.read_text())
    project.config.write_text(yaml.safe_dump(config, sort_keys=True) + "# a comment\n")
    now = time.time()
    for file in project.folder.rglob("*"):
        if file.is_file() and "results" not in file.parts and ".snakemake" not in file.parts:
            os.utime(file, (now, now))
    for file in (project.results / "data").rglob("*.*"):
        os.utime(file, (now, now))
    assert project.planned(cores="4") == {}


def test_another_working_directory_and_a_config_on_the_command_line(finished, tmp_path):
    planned = finished.planned("--config", "models={mlp: {epochs: 3}}", cwd=tmp_path)
    assert planned["train"] == RUNS
    assert finished.trains("--config", "models={mlp: {epochs: 3}}") == RUNS / 2


def test_mistakes_are_told_before_any_job(tmp_path):
    project = copy(tmp_path)
    project.edit("mine.yaml", "folds: 2", "folds: 1")
    project.edit("mine.yaml", "name: sgd, ", "")
    output = project.call(expect=1)
    assert f"{project.config}:14: studies.first.folds: found 1;" in output
    assert f"{project.config}:4: models.mlp.optimizer: lacks name" in output
    assert "Traceback" not in output
    assert not (tmp_path / "results").exists()


def test_cells_that_need_more_cores_than_there_are_stop_the_call(tmp_path):
    project = copy(tmp_path)
    project.configure(lambda config: config["studies"]["first"].update(workers=[1, 3]))
    output = project.call(expect=1)
    assert "ddp with 3 workers x 1 thread needs 3 cores" in output
    assert "this invocation has 2; give it --cores 3" in output
    assert not (tmp_path / "results").exists()
    assert project.trains(cores=None) == 12, "a dry run need not say them"


def test_more_nodes_than_there_are_stop_the_call(tmp_path):
    project = copy(tmp_path)
    project.configure(lambda config: config["studies"]["first"].update(nodes=2))
    output = project.call(expect=1)
    assert "studies.first.nodes: found 2; this invocation has 1; use a cluster" in output
    project.configure(lambda config: config["studies"]["first"].update(strategies=["hogwild"]))
    output = project.call("-n", expect=1, cores=None)
    assert "the workers of hogwild share memory, so they need one node; found 2 nodes" in output


MODULE = """
configfile: "mine.yaml"

module allcores:
    snakefile: "ROOT/SNAKEFILE"
    config: config

use rule * from allcores

rule first_line:
    default_target: True
    input: "results/mine/studies/first/accuracy_table.csv"
    output: "first_line.csv"
    shell: "head -1 {input} > {output}"

onstart:
    allcores.onstart()

onsuccess:
    allcores.onsuccess()

onerror:
    allcores.onerror()
"""


# Where Snakemake finds it by itself, and where the catalogue of workflows wants it.
SNAKEFILES = ("Snakefile", "workflow/Snakefile")


@pytest.mark.parametrize("snakefile", [None, *SNAKEFILES])
@pytest.mark.parametrize("place", [".", "elsewhere"])
def test_each_way_of_calling_finds_the_workflow_and_its_profile(tmp_path, snakefile, place):
    project = copy(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    command = [sys.executable, "-m", "snakemake", "-n", "--configfile", project.config]
    if snakefile or place != ".":
        command += ["-s", tmp_path / (snakefile or SNAKEFILES[0])]
    call = subprocess.run(
        command, cwd=tmp_path / place, env=ENVIRONMENT, capture_output=True, text=True
    )
    said = call.stdout + call.stderr
    assert call.returncode == 0, said
    assert "profiles/default for setting default command line arguments" in said
    assert re.search(r"^train +8$", said, re.MULTILINE), said


@pytest.mark.parametrize("snakefile", SNAKEFILES)
def test_another_workflow_has_it_as_a_module(tmp_path, snakefile):
    project = Project(tmp_path)
    module = MODULE.replace("ROOT", str(ROOT)).replace("SNAKEFILE", snakefile)
    (tmp_path / "Snakefile").write_text(module)
    project.config.write_text(MINIATURE)
    one = {"models": ["mlp"], "strategies": ["serial"]}
    project.configure(lambda config: config["studies"]["first"].update(one))
    command = [sys.executable, "-m", "snakemake", "--cores", "2"]
    call = subprocess.run(
        command,
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=patience.seconds(200),
    )
    assert call.returncode == 0, call.stderr
    assert "2 runs trained, 0 of them diverged; 0 missing" in call.stderr
    assert (tmp_path / "first_line.csv").read_text().startswith("dataset,model,schedule")


def test_parsing_imports_no_torch(finished):
    code = (
        "import sys, snakemake.cli as cli\ntry: cli.main(sys.argv[1:])\nexcept SystemExit: pass\n"
    )
    code += "print([name for name in ('torch', 'sklearn') if name in sys.modules])"
    arguments = ["-n", "--cores", "2", "--configfile", str(finished.config)]
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=finished.folder,
        env=ENVIRONMENT,
        text=True,
        capture_output=True,
    )
    assert run.stdout.splitlines()[-1] == "[]", run.stdout + run.stderr


def one_long_run(config):
    config["models"]["mlp"]["epochs"] = 3000
    config["studies"]["first"].update(models=["mlp"], strategies=["ddp"])


@pytest.mark.parametrize("is_ignored", [False, True])
def test_a_terminal_that_is_closed_ends_a_call_in_good_order(tmp_path, is_ignored):
    """It sends SIGHUP to all processes, which nohup has them ignore."""
    project = copy(tmp_path)
    project.configure(one_long_run)
    ignore = (lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) if is_ignored else None
    with (tmp_path / "said").open("w") as said:
        process = project.snakemake(stdout=said, start_new_session=True, preexec_fn=ignore)
    try:
        wait_for(lambda: list((project.results / "checkpoints").rglob("latest.allcores")))
        os.killpg(process.pid, signal.SIGHUP)
        if is_ignored:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=2)
            os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=patience.seconds(60)) == 1
    finally:
        process.kill()
    log = next((project.results / "logs" / "train").rglob("*.log")).read_text()
    stopped_by = "SIGINT" if is_ignored else "SIGHUP"
    assert f"train.py: stopped by {stopped_by}; the same command resumes" in log
    said = (tmp_path / "said").read_text()
    assert said.count("Stopping: running jobs save and end, no others start") == 1
    assert not any(text in said for text in ("Traceback", "Will exit after", "WorkflowError"))
    assert project.trains() == 2, "nothing is locked"


def test_killing_snakemake_leaves_nothing_and_the_next_call_resumes(tmp_path):
    project = copy(tmp_path)

    project.configure(one_long_run)
    process = project.snakemake()
    checkpoints = project.results / "checkpoints"
    wait_for(lambda: list(checkpoints.rglob("latest.allcores")))
    begun = psutil.Process(process.pid).children(recursive=True)
    # Client, warm process, keeper, program, two workers.
    assert len(begun) >= 6
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not any(alive(child.pid) for child in begun), 1)
    wait_for(lambda: not list((tmp_path / ".snakemake").glob("warm_process_*")), 5)
    process.stdout.close()

    project.call("--unlock")
    assert project.trains() == 2
    process = project.snakemake(cores="4")  # both at once
    end = time.monotonic() + 240
    resumed = False
    while not resumed:
        assert time.monotonic() < end and process.poll() is None
        logs = (project.results / "logs" / "train").rglob("*.log")
        resumed = any("resumed after epoch" in log.read_text() for log in logs)
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_sigterm_ends_a_call_that_waits_for_missing_files(tmp_path):
    """As where a file system shows them late: there Snakemake holds a lock."""
    project = copy(tmp_path)
    project.configure(lambda config: config["studies"]["first"].update(models=["mlp"]))
    project.edit("scripts/train.py", "marks.put_all(flags.mark)", "pass")
    log = tmp_path / "log"
    with log.open("w") as file:
        process = project.snakemake("--latency-wait", "3", cwd=tmp_path, stdout=file)
        wait_for(lambda: "seconds for missing files" in log.read_text())
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(timeout=patience.seconds(30)) == 1
        finally:
            process.kill()
    assert log.read_text().count("Stopping: running jobs end, no others start") == 1
