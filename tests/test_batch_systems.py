"""The profiles of batch systems other than SLURM, with stand-ins for their commands."""

import re
import subprocess
import sys

import pytest
from conftest import ENVIRONMENT
from slurm_lab import ended, small

# Beside a real SLURM's: each job of a cluster starts two snakemakes.
pytestmark = pytest.mark.slurm
# Runs what is submitted, and keeps how it was asked for.
SUBMIT = """#!/bin/bash
printf '%s ' "$@" $'\n' >>{folder}/asked
# As Grid Engine limits what a job is given: h_vmem is address space.
limit=$(printf '%s ' "$@" | sed -n 's/.*h_vmem=\\([0-9]*\\)M.*/\1/p')
[ -z "$limit" ] || ulimit -v $((limit * 1024))
setsid bash "${{@: -1}}" >{folder}/said 2>&1 </dev/null &
echo "{answer}"
"""
# Of one that reads what is asked for.
DESCRIBED = """#!/bin/bash
printf '%s ' $(tee -a {folder}/asked | sed -n 's/^arguments = //p') >{folder}/script
setsid bash $(cat {folder}/script) >{folder}/said 2>&1 </dev/null &
echo "{answer}"
"""
# Profile -> (command, its answer, what is asked of it for a run of two processes).
SYSTEMS = {
    "lsf": (
        "bsub",
        "Job <7> is submitted to default queue <normal>.",
        r"-n 2 -R span\[hosts=1\] rusage\[mem=\d+\] -W \d+ -J train",
    ),
    "sge": ("qsub", "7", r"-N train .* -pe smp 2 -l mem_free=\d+M -l h_rt=\d+"),
    "htcondor": (
        "condor_submit",
        "7.0 - 7.0",
        r"request_cpus = 2\nrequest_memory = \d+\nallowed_job_duration = \d+00\n",
    ),
    "pbs": ("qsub", "7.server", r"-N train .*select=1:ncpus=2:mem=\d+mb -l walltime=\d+:\d+:00"),
}


class Call:
    """A project whose runs go to one of SYSTEMS."""

    def __init__(self, folder, system):
        self.system = system
        self.project = small(folder, strategies=["ddp"])
        command, answer, self.asked = SYSTEMS[system]
        program = folder / "bin" / command
        program.parent.mkdir()
        stand_in = DESCRIBED if system == "htcondor" else SUBMIT
        program.write_text(stand_in.format(folder=folder, answer=answer))
        program.chmod(0o755)
        self.environment = ENVIRONMENT | {"PATH": f"{program.parent}:{ENVIRONMENT['PATH']}"}

    def __call__(self, *arguments):
        """The process of snakemake."""
        words = [sys.executable, "-m", "snakemake", "--configfile", self.project.config]
        words += ["--profile", f"profiles/{self.system}", "--seconds-between-status-checks", "1"]
        return subprocess.Popen(
            list(map(str, [*words, "--latency-wait", "5", *arguments])),
            cwd=self.project.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )


def test_runs_are_submitted_and_end(tmp_path):
    calls = [Call(tmp_path / system, system) for system in SYSTEMS]
    for call, process in [(call, call()) for call in calls]:
        said = ended(process)
        assert "with external jobid '7" in said, "what cancels a job takes its number"
        submitted = (call.project.folder / "asked").read_text()
        assert len(re.findall(call.asked, submitted)) == 2, submitted
        assert len(list((call.project.results / "runs").rglob("metrics.json"))) == 2


def test_runs_over_several_nodes_are_refused(tmp_path):
    call = Call(tmp_path / "lsf", "lsf")
    call.project.configure(lambda config: config["studies"]["first"].update(nodes=2))
    assert "Runs over several nodes need SLURM" in ended(call(), returns=1)


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_the_system_refuses_is_not_waited_for(tmp_path, system):
    call = Call(tmp_path, system)
    (tmp_path / "bin" / SYSTEMS[system][0]).write_text("#!/bin/sh\nexit 1\n")
    assert "Error submitting jobscript" in ended(call("--retries", "0"), returns=1)
