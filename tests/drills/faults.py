"""What can happen to a campaign, each as something that a drill does to it.

A fault of a campaign that is going on is a function of (project, random); one of a campaign at rest
as well. What it has done is said in words.
"""

import contextlib
import os
import shutil
import signal
import time

import psutil
from campaign import VERSIONS, write_data, write_model

# By how many warm processes and what was forked from them stand above a process.
FORKED = ("warm process", "keeper", "program", "rank")
SECONDS = (0.0, 0.1, 0.5, 2.0, 6.0)  # into a call, about


def processes(folder):
    """[(role, process)] of all processes whose working directory is a folder, or below it."""
    pairs = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd() == str(folder) or process.cwd().startswith(f"{folder}/"):
                pairs.append((_role(process), process))
    return pairs


def _role(process):
    line = " ".join(process.cmdline())
    if "warm_process.py" in line:
        depth = sum("warm_process.py" in " ".join(p.cmdline()) for p in process.parents())
        return FORKED[min(depth, len(FORKED) - 1)]
    if "scripts/start.py" in line and "bash" not in line:
        return "client"
    if "snakemake" in line and "/scripts/" not in line:
        return "snakemake"
    return "other"


def send(number, role, what):
    """A fault: a signal to a process of a role, or to all (role None), at some time."""

    def fault(project, random):
        time.sleep(random.choice(SECONDS) * random.random())
        end = time.monotonic() + 8
        while time.monotonic() < end:
            running = processes(project.folder)
            victims = [process for name, process in running if role in (None, name)]
            if victims:
                break
            time.sleep(0.02)
        else:
            return f"no {role} was there"
        victims = victims if role is None else [random.choice(victims)]
        for process in victims:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
        if number == signal.SIGSTOP:
            time.sleep(3 * random.random())
            for process in victims:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGCONT)
        return f"{what} {role or 'all processes'}"

    return fault


def interrupt_group(project, random):
    """Ctrl-C at a terminal: SIGINT to snakemake and what it has started, but warm processes."""
    time.sleep(random.choice(SECONDS) * random.random())
    for role, process in processes(project.folder):
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if role == "snakemake" and os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, signal.SIGINT)
                return "pressed Ctrl-C"
    return "no snakemake was there"


def fill_disk(project, random):
    """Leave a few KB of the file system, for some seconds."""
    time.sleep(random.choice(SECONDS) * random.random())
    filler = project.folder / "filler"
    free = shutil.disk_usage(project.folder).free - random.choice([0, 4, 64, 512]) * 1024
    with contextlib.suppress(OSError), filler.open("wb") as file:
        for _ in range(max(0, free) // 4096):
            file.write(bytes(4096))
    time.sleep(4 * random.random())
    filler.unlink(missing_ok=True)
    return "filled the disk for some seconds"


def second_call(project, random):
    """The same call again, while the first is going on: it is turned away in a line."""
    time.sleep(random.choice(SECONDS) * random.random())
    other = project.snakemake()
    output, _ = other.communicate(timeout=300)
    turned_away = "another invocation is running" in output
    if other.returncode and not turned_away:
        raise AssertionError(f"a second call ended with {other.returncode}:\n{output}")
    return "called a second time"


CHECKPOINTS = "results/mine/checkpoints/**/*.allcores"
# Kind of file -> where they are, below the project.
FILES = {
    "metrics.json": "results/mine/runs/**/metrics.json",
    "predictions.parquet": "results/mine/runs/**/predictions.parquet",
    "weights.pt": "results/mine/runs/**/weights.pt",
    "dataset.json": "results/mine/data/*/dataset.json",
    "an array of data": "results/mine/data/*/*.npy",
    "folds": "results/mine/data/*/*folds*.json",
    "a selection": "results/mine/selections/**/*.json",
    "a table": "results/mine/studies/*/*.csv",
    "a figure": "results/mine/studies/*/*.svg",
    "a report": "results/mine/studies/*/report.html",
    "what a study was made of": "results/mine/studies/*/made.json",
    "a log": "results/mine/logs/**/*.log",
    "a file of a call": "results/mine/calls/**/*",
    "a record of Snakemake's": ".snakemake/metadata/*",
    "a mark": "results/mine/**/*.[0-9a-f]*[0-9a-f]",
}
# Marks are empty; and a record of Snakemake's with another bit ends its call, a cut one does not.
HOW = {"a record of Snakemake's": ("truncate", "delete"), "a mark": ("delete",)}


def damage(kind, how):
    """A fault: one file of a kind is flipped in a bit, truncated or deleted."""

    def fault(project, random):
        return _damaged(project, random, FILES[kind], how)

    return fault


def _damaged(project, random, pattern, how):
    files = sorted(path for path in project.folder.glob(pattern) if path.is_file())
    if not files:
        return f"there is no {pattern}"
    file = random.choice(files)
    content = bytearray(file.read_bytes())
    if how == "delete":
        file.unlink()
    elif how == "truncate":
        file.write_bytes(content[: random.randrange(len(content) + 1)])
    elif content:
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        file.write_bytes(content)
    return f"{how} {file.relative_to(project.folder)}"


def damage_checkpoint(how):
    """A fault: all are killed once there is a checkpoint, which is damaged then."""

    def fault(project, random):
        end = time.monotonic() + 20
        while time.monotonic() < end and processes(project.folder):
            if list(project.folder.glob(CHECKPOINTS)):
                send(signal.SIGKILL, None, "kill")(project, random)
                return _damaged(project, random, CHECKPOINTS, how)
            time.sleep(0.02)
        return "there was no checkpoint"

    return fault


def forget(project, random):
    """Snakemake's own folder goes."""
    shutil.rmtree(project.folder / ".snakemake", ignore_errors=True)
    return "removed .snakemake"


def leave_weights(project, random):
    """Of a run's results only the weights stay."""
    runs = sorted(project.folder.glob(FILES["weights.pt"]))
    if not runs:
        return "there was no run"
    run = random.choice(runs)
    for file in run.parent.iterdir():
        if file != run:
            file.unlink()
    return f"left only {run.relative_to(project.folder)}"


def change(what, write):
    """A fault: data or the user's model become the other version."""

    def fault(project, random):
        del random
        version = next(candidate for candidate in VERSIONS if candidate != project.versions[what])
        write(project.folder, version)
        project.versions[what] = version
        return f"changed the {what} to version {version}"

    return fault


# Strategy -> a line of its code.
CODE = {
    "ring": "def step(self, lr: float) -> None:",
    "gossip": "def step(self, lr: float) -> None:",
    "ddp": "def _arrange_buckets(self) -> None:",
}


def change_code(project, random):
    """A line of a strategy's code becomes another that does the same."""
    name = random.choice([*CODE])
    path, plain = f"scripts/allcores/strategies/{name}.py", CODE[name]
    marked = plain.replace(") ->", ", _unused=None) ->")
    text = (project.folder / path).read_text()
    project.edit(path, *((plain, marked) if plain in text else (marked, plain)))
    return f"changed code of {name}"


# Name -> fault, of those during a call and of those at rest.
DURING = {
    f"{what} {role or 'all processes'}": send(number, role, what)
    for number, what, roles in (
        (signal.SIGKILL, "kill", ("snakemake", "client", *FORKED, None)),
        (signal.SIGTERM, "end", ("snakemake", "program", "rank")),
        (signal.SIGINT, "interrupt", ("snakemake",)),
        (signal.SIGSTOP, "stop and continue", ("snakemake", *FORKED)),
    )
    for role in roles
}
DURING |= {
    "press Ctrl-C": interrupt_group,
    "fill the disk": fill_disk,
    "call a second time": second_call,
}
DURING |= {f"kill all, {how} a checkpoint": damage_checkpoint(how) for how in ("flip", "truncate")}
AT_REST = {
    f"{how} {kind}": damage(kind, how)
    for kind in FILES
    for how in HOW.get(kind, ("flip", "truncate", "delete"))
} | {
    "remove .snakemake": forget,
    "leave only the weights": leave_weights,
    "change the data": change("data", write_data),
    "change the model": change("model", write_model),
    "change code": change_code,
}
