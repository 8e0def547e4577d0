"""Choose nodes of an allocation with room for a run, and become the srun that starts it.

    python -I -S profiles/step.py --nodes 1 --cores 2 --mem 900 -- PROGRAM [ARGUMENT ...]

SLURM could choose the nodes (srun --exact), but it places steps badly where cores have several
hardware threads, and it looks for room again only after a while. So SLURM lets all steps overlap,
and this program records what each one has in .snakemake/steps_JOB.json, whose entries count as long
as their process exists. A run itself decides which cores of a node it gets, by leases: see
allcores/machine/leases.py.
"""

import argparse
import fcntl
import json
import os
import sys
import time

AGAIN = 0.1  # seconds until a run without room looks again
# Set by profiles/allocation.sh: "n1 48 190000\nn2 ...", the name, cores and MB of each node.
ROOM = "ALLCORES_ROOM"


def began(pid):
    """Return when a process began, in ticks since boot (proc_pid_stat(5)); None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - pathlib takes 10 ms to import
            state, *fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else int(fields[18])


def with_room(steps, room, nodes, cores, memory):
    """Return the names of nodes that have room for a run; None if there are too few now.

    The fullest ones are taken, so that room is left for wider runs.

    Args:
        steps: [{"nodes": names, "cores": on each, "memory": MB on each}] of what is running.
        room: name -> (cores, MB) of each node.
        nodes, cores, memory: what the run takes, the latter two on each node.
    """
    free = dict(room)
    for step in steps:
        for name in step["nodes"]:
            free[name] = free[name][0] - step["cores"], free[name][1] - step["memory"]
    fitting = [name for name in room if free[name][0] >= cores and free[name][1] >= memory]
    return (
        sorted(fitting, key=lambda name: free[name][0])[:nodes] if len(fitting) >= nodes else None
    )


def take(book, room, nodes, cores, memory):
    """Wait until there is room, record that this process has it, and return the nodes' names."""
    while True:
        with open(book, "a+") as file:  # noqa: PTH123
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            steps = [json.loads(line) for line in file]
            steps = [step for step in steps if began(step["pid"]) == step["began"]]
            names = with_room(steps, room, nodes, cores, memory)
            if names:
                entry = {"nodes": names, "cores": cores, "memory": memory}
                steps.append(entry | {"pid": os.getpid(), "began": began(os.getpid())})
                file.truncate(0)
                file.write("".join(f"{json.dumps(step)}\n" for step in steps))
                return names
        time.sleep(AGAIN)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, text in (("nodes", "how many"), ("cores", "on each"), ("mem", "MB on each")):
        parser.add_argument(f"--{name}", type=int, required=True, help=text)
    parser.add_argument("command", nargs="+", help="program to run once on each node")
    flags = parser.parse_args()
    lines = [line.split() for line in os.environ[ROOM].splitlines()]
    room = {name: (int(cores), int(memory)) for name, cores, memory in lines}
    large = [
        name for name, (cores, mem) in room.items() if cores >= flags.cores and mem >= flags.mem
    ]
    if len(large) < flags.nodes:
        sys.exit(
            f"step.py: the run needs {flags.nodes} node(s) with {flags.cores} cores and "
            f"{flags.mem} MB each; only {len(large)} in this allocation have as much: {room}"
        )
    book = f".snakemake/steps_{os.environ['SLURM_JOB_ID']}.json"
    names = take(book, room, flags.nodes, flags.cores, flags.mem)
    os.execvp(
        "srun",
        [
            *("srun", "--overlap", f"--nodes={flags.nodes}", f"--nodelist={','.join(names)}"),
            *("--ntasks-per-node=1", f"--cpus-per-task={flags.cores}", "--cpu-bind=none"),
            *("--kill-on-bad-exit=1", "--wait=0", "--input=none", "--quiet", *flags.command),
        ],
    )
