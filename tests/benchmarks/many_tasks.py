"""2,000 tasks that do nothing but leave a file, on two cores: ours, joblib, Ray and HyperQueue.

Measured are the time per task, and what a second call does over again after the first was killed
halfway. A task of ours is a run, pretended as in many_runs.py, with its settings and checks, in a
job that it shares with others, but really trained where a call is killed; of the others a function,
or of HyperQueue a command, as their manuals begin.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import SNAKEMAKE, report, sized

TASKS, KILLED_TASKS = sized(2000, 6), sized(200, 6)
CORES = 2


def task(folder, number):
    Path(folder, str(number)).touch()


def with_joblib(folder, tasks):
    from joblib import Parallel, delayed

    Parallel(n_jobs=CORES)(delayed(task)(folder, number) for number in range(tasks))


def with_ray(folder, tasks):
    import ray

    ray.init(num_cpus=CORES, include_dashboard=False)
    remote = ray.remote(task)
    ray.get([remote.remote(folder, number) for number in range(tasks)])


def with_hyperqueue(folder, tasks):
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig

    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=CORES))
        job = Job()
        for number in range(tasks):
            job.program(["touch", f"{folder}/{number}"], stdout=None, stderr=None)
        client = cluster.client()
        client.wait_for_jobs([client.submit(job)])


def ours(folder, tasks):
    import many_runs
    import yaml

    if not Path(folder, "mine.yaml").exists():
        if tasks == KILLED_TASKS:
            project = many_runs.copy(Path(folder))
            project.config.write_text(yaml.safe_dump(many_runs.study(tasks, is_shared=True)))
        else:
            many_runs.pretend(Path(folder), many_runs.study(tasks, is_shared=True), seconds=0)
    os.chdir(folder)
    command = [*SNAKEMAKE, "-s", "workflow/Snakefile", "--configfile", "mine.yaml"]
    command += ["--until", "train", "train_several", "--cores", CORES]
    command += ["--resources", f"mem_mb={10**9}"]
    os.execvp(command[0], list(map(str, command)))


WAYS = {"ours": ours, "joblib": with_joblib, "ray": with_ray, "hyperqueue": with_hyperqueue}


def completion_times(tool, folder):
    """When each task that is done left its file: {file: time in ns}."""
    place, name = (
        (Path(folder, "results"), "metrics.json") if tool == "ours" else (folder, "[0-9]*")
    )
    return {file: file.stat().st_mtime_ns for file in Path(place).rglob(name)}


def start(tool, folder, tasks):
    command = [sys.executable, __file__, tool, folder, str(tasks)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, start_new_session=True, **quiet)


def seconds(tool):
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        assert start(tool, folder, TASKS).wait() == 0, tool
        return time.perf_counter() - began


def done_again(tool):
    """How many tasks of those that were done a second call repeats, after the first was killed."""
    with tempfile.TemporaryDirectory() as folder:
        process = start(tool, folder, KILLED_TASKS)
        while len(completion_times(tool, folder)) < KILLED_TASKS // 2 and process.poll() is None:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        time.sleep(1)  # what is left of it may go on
        before = completion_times(tool, folder)
        if tool == "ours":
            for lock in Path(folder, ".snakemake", "locks").glob("*"):
                lock.unlink()  # snakemake --unlock
        assert start(tool, folder, KILLED_TASKS).wait() == 0, tool
        after = completion_times(tool, folder)
        return sum(after[file] != moment for file, moment in before.items()) / len(before)


if __name__ == "__main__":
    if sys.argv[1:]:
        tool, folder, tasks = sys.argv[1:]
        WAYS[tool](folder, int(tasks))
        sys.exit()
    rows = []
    for tool in WAYS:
        if tool not in ("ours", "joblib") and importlib.util.find_spec(tool) is None:
            print(f"{tool} is not installed: left out")
            continue
        rows += [
            (f"{tool}: per task", "ms", [1000 * seconds(tool) / TASKS for _ in range(sized(3, 1))]),
            (f"{tool}: done again after a kill", "%", [100 * done_again(tool)]),
        ]
    report("many_tasks", rows)
