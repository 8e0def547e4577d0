"""Kill a campaign again and again, anywhere and at any time, and hold what comes out in the end
against a campaign that was left alone.

    python tests/drills/kills.py 60
"""

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]

import psutil  # noqa: E402
import torch  # noqa: E402
from project import copy  # noqa: E402

CONFIG = """
models:
  mlp: {hidden: [16], batch_size: 16, epochs: 60, optimizer: {name: adam, lr: 0.01}}
  lenet: {width: 0.5, batch_size: 16, epochs: 20, optimizer: {name: sgd, lr: 0.05, momentum: 0.9}}
datasets:
  tiny: {name: synthetic, count: 200, test: 0, size: 8, classes: 3}
strategies:
  servers: {name: parameter_server, servers: 2}
studies:
  equal:
    datasets: [tiny]
    folds: 2
    models: [mlp, lenet]
    schedules: [warm_restarts]
    strategies: [serial, data_parallel, ddp, ring, servers, local_sgd, gossip, shared_memory]
    workers: [2]
    curves: true
    exclusive: true
    oversubscribe: true
  others:
    datasets: [tiny]
    folds: 2
    models: [mlp]
    strategies: [hogwild, async_parameter_server]
    workers: [2]
    exclusive: true
    oversubscribe: true
"""
# What of a run must not depend on how often it was killed.
SAME = ("accuracy", "loss", "confusion", "accuracy_per_class", "train_samples", "held_out_samples")


def processes(folder):
    """role -> the processes of a project's campaign."""
    found = {"snakemake": [], "train.py": [], "worker": []}
    for process in psutil.process_iter(["cmdline", "cwd", "ppid"]):
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.info["cmdline"] or [])
            if str(folder) not in line:
                continue
            if "/scripts/train.py" in line and "bash" not in line.split()[0]:
                parent = " ".join(process.parent().cmdline()) if process.parent() else ""
                role = "worker" if "/scripts/train.py" in parent else "train.py"
                found[role].append(process)
            elif "snakemake" in line and "scripts" not in line:
                found["snakemake"].append(process)
    return found


def kill(folder, role):
    """Kill one process of a role with SIGKILL, or a whole group; says whether there was one."""
    found = processes(folder)
    victims = found[role] if role != "group" else []
    if role == "group":
        victims = [p for ps in found.values() for p in ps]
    elif victims:
        victims = [random.choice(victims)]
    for process in victims:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
    return bool(victims)


def wait_for_one(folder, snakemake, role):
    """Until there is something to kill in that role; or until the campaign is over."""
    needed = "train.py" if role in ("snakemake", "group") else role
    while snakemake.poll() is None and not processes(folder)[needed]:
        time.sleep(0.01)


def disturbed(project, kills):
    """Run the campaign with so many kills; role -> how often."""
    done = dict.fromkeys(("worker", "train.py", "snakemake", "group"), 0)
    process = None
    while True:
        if process is None or process.poll() is not None:
            if sum(done.values()) >= kills and process is not None and process.returncode == 0:
                return done
            if process is not None:
                process.stdout.close()
                project.call("--unlock")
            process = project.snakemake("--quiet", "all")
            os.set_blocking(process.stdout.fileno(), False)
        if sum(done.values()) < kills:
            role = random.choice(list(done))
            wait_for_one(project.folder, process, role)
            # From the very start of a training, when it is still importing, to its last lines.
            time.sleep(random.choice([0.0, 0.1, 0.5, 2.0]) * random.random())
            if kill(project.folder, role):
                done[role] += 1
                print(f"kill {sum(done.values())}: {role}", flush=True)
        else:
            time.sleep(0.2)
        with contextlib.suppress(BlockingIOError, TypeError, ValueError):
            process.stdout.read()


def outcome(path):
    """What a run came to: numbers of its metrics.json, and its weights."""
    metrics = json.loads(path.read_text())
    numbers = {key: metrics[key] for key in SAME}
    numbers["epochs"] = [
        {key: epoch[key] for key in ("loss", "lr", "accuracy", "held_out_loss")}
        for epoch in metrics["epochs"]
    ]
    return numbers, torch.load(path.with_name("weights.pt")), len(metrics["sessions"])


def compare(calm, killed):
    """Print what differs; how many runs do."""
    bad = sessions = 0
    paths = sorted((calm.results / "runs").rglob("metrics.json"))
    for path in paths:
        other = killed.results / path.relative_to(calm.results)
        numbers, weights, _ = outcome(path)
        their_numbers, their_weights, their_sessions = outcome(other)
        sessions += their_sessions > 1
        if any(name in str(path) for name in ("hogwild", "async")):
            counted = ("train_samples", "held_out_samples")
            equal = all(numbers[key] == their_numbers[key] for key in counted)
            equal &= len(numbers["epochs"]) == len(their_numbers["epochs"])
            equal &= all(torch.isfinite(weights).all() for weights in their_weights.values())
        else:
            equal = numbers == their_numbers and all(
                torch.equal(weights[key], their_weights[key]) for key in weights
            )
        if not equal:
            bad += 1
            print("DIFFERENT:", path.relative_to(calm.results))
    tables = "accuracy_table.csv", "per_class_table.csv", "confusion.csv", "classes.csv"
    for name in tables:
        file = Path("studies") / "equal" / name
        numbers = ["accuracy", "standard_deviation", "half_width_95"]
        columns = numbers if "accuracy" in name else None
        if _table(calm.results / file, columns) != _table(killed.results / file, columns):
            bad += 1
            print("DIFFERENT:", file)
    print(f"{len(paths)} runs compared, {sessions} of them resumed, {bad} different")
    return bad


def _table(file, columns):
    from allcores.analysis import tidy

    frame = tidy.read(file)
    return (frame[columns] if columns else frame).to_csv()


if __name__ == "__main__":
    kills = int(sys.argv[1])
    random.seed(time.time_ns())
    with tempfile.TemporaryDirectory(prefix="allcores-drill-") as folder:
        calm, killed = copy(Path(folder, "calm")), copy(Path(folder, "killed"))
        for project in (calm, killed):
            project.config.write_text(CONFIG)
        calm.call()
        done = disturbed(killed, kills)
        print("killed:", ", ".join(f"{role} {count} times" for role, count in done.items()))
        time.sleep(1)
        left = [p for ps in processes(folder).values() for p in ps]
        print(f"{len(left)} processes left")
        sys.exit(bool(compare(calm, killed) or left))
