"""What Snakemake does not promise, and this project uses, still is as it was.

What concerns clusters and signals is tested in test_slurm.py and test_workflow.py."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from conftest import ENVIRONMENT, OF_CALLS, ROOT, warm
from project import WARM, copy
from snakemake.resources import Resources

from allcores_study.campaign import snakemake_internals as internals

FLAGS = ["--cores", "2", "--scheduler", "greedy"]
SNAKEFILE = """
import os, sys

sys.path.insert(0, SCRIPTS)
from allcores_study.campaign import snakemake_internals as internals

print("main", internals.is_main_process(workflow), file=sys.stderr)
print("cores", internals.local_cores(workflow), file=sys.stderr)
print("given", internals.given(workflow), file=sys.stderr)
print("values", internals.given_values(workflow), file=sys.stderr)
internals.offer_memory(workflow, 100)


def check(wildcards):
    print("executes", internals.executes(workflow), file=sys.stderr)
    print("forced", internals.forced_rules(workflow), file=sys.stderr)
    return []


rule all:
    input:
        "made",
        "other",


rule make:
    input:
        check,
    output:
        "made",
    priority: 3
    resources:
        mem_mb=lambda wildcards, attempt: 70,
    shell:
        "touch made; sleep 0.3"


rule another:
    output:
        "other",
    resources:
        mem_mb=70,
    shell:
        "test -e made && touch {output}"


onstart:
    jobs = internals.jobs_to_run(workflow)
    print("to run", sorted(job.rule.name for job in jobs), file=sys.stderr)
    assert workflow.scheduler.job_rate_limiter is not None
    internals.start_at_once(workflow)
    print("told", internals.is_told_to_finish(workflow), file=sys.stderr)
    if "FINISH" in os.environ:
        internals.finish_running_jobs(workflow)
    if "LEAVE" in os.environ:
        internals.leave_running_jobs(workflow)


onsuccess:
    print("well", file=sys.stderr)


onerror:
    print("told", internals.is_told_to_finish(workflow), file=sys.stderr)
    print("left", internals.is_told_to_leave(workflow), file=sys.stderr)
"""


TURNS = """
import sys

sys.path.insert(0, SCRIPTS)
from allcores_study.campaign import snakemake_internals as internals

internals.one_local_job_at_a_time(workflow)


rule all:
    input:
        "1",
        "2",


rule one:
    output:
        "{number}",
    wildcard_constraints:
        number="[12]",
    resources:
        local_slot=1,
    shell:
        "mkdir busy && sleep 0.5 && rmdir busy && touch {output}"
"""


@pytest.fixture
def call(tmp_path):
    (tmp_path / "Snakefile").write_text(SNAKEFILE.replace("SCRIPTS", repr(str(ROOT / "scripts"))))

    def snakemake(*arguments, expect=0, **environment):
        run = subprocess.run(
            [*warm(OF_CALLS, WARM / "call.py"), *FLAGS, *arguments],
            cwd=tmp_path,
            env=ENVIRONMENT | environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert run.returncode == expect, run.stdout
        return run.stdout

    return snakemake


def test_what_a_call_was_given(call):
    said = call("-n", "--config", "one=1", "two={c: 2}")
    assert "main True" in said
    assert "cores 2" in said
    assert "given ([], ['one=1', 'two={c: 2}'], " in said
    assert "values {'one': 1, 'two': {'c': '2'}}" in said, (
        "numbers inside of what it gave are texts"
    )
    assert "executes False" in said
    assert internals.parsed_pairs(["one=1", "two={c: 2}"]) == {"one": 1, "two": {"c": "2"}}


def test_jobs_are_packed_by_memory_and_run_by_priority(call):
    said = call()
    assert "executes True" in said
    assert "to run ['all', 'another', 'make']" in said
    assert "told False" in said
    # With room for one of them: `another` fails if it is not the second.
    assert said.index("rule make") < said.index("rule another")
    assert "well" in said


def test_what_is_forced_is_known(call):
    assert "forced {'another'}" in call("-n", "--forcerun", "another")
    assert "forced None" in call("-n", "--forceall")


def test_no_job_is_started_once_it_is_told_to_finish(call, tmp_path):
    said = call(expect=1, FINISH="1")
    assert "told True" in said
    assert not (tmp_path / "other").exists()


def test_no_job_is_started_once_it_is_told_to_leave(call, tmp_path):
    said = call(expect=1, LEAVE="1")
    assert "left True" in said
    assert "told True" not in said
    assert not (tmp_path / "made").exists()


def test_a_lock_that_a_killed_call_has_left_locks_nothing(tmp_path):
    """The project's own ends with its process."""
    project, locks = copy(tmp_path), tmp_path / ".snakemake" / "locks"
    project.call("--until", "prepare_dataset")
    (mark,) = (project.results / "data" / "tiny").glob("made.*")
    mark.unlink()
    (mark.parent / "dataset.json").unlink()
    locks.mkdir(exist_ok=True)
    (locks / "0.output.lock").write_text(f"{mark.relative_to(tmp_path)}\n")
    project.call("--until", "prepare_dataset")
    assert mark.exists()


@pytest.mark.parametrize(
    ("given", "expected"),
    [("'--exclude=n1 --reservation=x'", "--exclude=n1 --reservation=x"), (5, "5")],
)
def test_what_a_profile_gives_all_jobs_is_known(given, expected):
    found = Resources.from_mapping({"slurm_extra": given})
    settings = SimpleNamespace(default_resources=found)
    workflow = SimpleNamespace(resource_settings=settings)
    assert internals.default_text(workflow, "slurm_extra") == expected
    assert internals.default_text(workflow, "other") == ""
    settings.default_resources = None
    assert internals.default_text(workflow, "slurm_extra") == ""


def test_a_profile_of_a_cluster_decides_not_the_cores(call):
    given = "--executor", "allcores-slurm", "--jobs", "3"
    assert "cores None" in call("-n", *given)


def test_jobs_on_a_login_node_take_turns(tmp_path):
    """Each fails if the other runs at the same time."""
    (tmp_path / "Snakefile").write_text(TURNS.replace("SCRIPTS", repr(str(ROOT / "scripts"))))
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "-q", "rules"]
    run = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, text=True, capture_output=True)
    assert run.returncode == 0, run.stderr
