"""Do to a campaign what happens to campaigns, for as long as one likes, and hold what comes out
against campaigns that were left alone.

    python tests/drills/soak.py --minutes 60

After each disturbance the next calls have to end, and all results must be those of an undisturbed
campaign, bit for bit. What is disturbed, and when, follows from the seed, which is printed; what
has been found wrong can be tried again by --seed and --only.
"""

import argparse
import collections
import contextlib
import dataclasses
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]

import patience  # noqa: E402
import psutil  # noqa: E402
from campaign import CONFIG, VERSIONS, differences, write_data, write_model, write_twin  # noqa: E402
from conftest import ENVIRONMENT, start_warm_processes  # noqa: E402
from faults import AT_REST, DURING, processes  # noqa: E402
from project import copy  # noqa: E402

# What a fault says that found nothing to damage.
NOTHING = re.compile(r"\bthere (is|was) no ")
# No call takes longer, nor do more than so many calls; then it hangs, or never comes to an end.
LIMIT, CALLS = 100.0, 6
DISK = "400m"
TRAINED = re.compile(r"^(\d+) runs trained", re.MULTILINE)
OF_SNAKEMAKE = r"No space left on device|KeyboardInterrupt"


@dataclasses.dataclass
class Tally:
    """What came of a fault; each a count.

    Attributes:
        times: that it was done.
        nothing: that there was nothing to do it to.
        calls: until all was there again, summed up.
        trained: runs that these calls have trained.
        different, hung, tracebacks, left: what must not happen.
    """

    times: int = 0
    nothing: int = 0
    calls: int = 0
    trained: int = 0
    different: int = 0
    hung: int = 0
    tracebacks: int = 0
    left: int = 0

    @property
    def is_bad(self):
        return bool(self.different or self.hung or self.tracebacks or self.left)


class Campaign:
    """The disturbed project, and what is known of it.

    Args:
        project: a project.Project, whose campaign has come to its end once.
        twins: version -> the Project that was left alone.
    """

    def __init__(self, project, twins):
        self.project, self.twins = project, twins
        project.versions = {"data": VERSIONS[0], "model": VERSIONS[0]}

    def called(self, fault=None, chance=None):
        """The output and exit status of a call; status None: it did not end.

        Args:
            fault: what is done to it meanwhile; it gets chance, a random.Random.
        """
        process = self.project.snakemake(start_new_session=True)
        lines, words = [], []
        reader = threading.Thread(target=lambda: lines.extend(process.stdout), daemon=True)
        reader.start()
        if fault:
            words.append(fault(self.project, chance))
        try:
            status = process.wait(timeout=patience.seconds(LIMIT))
            reader.join(timeout=10)
        except subprocess.TimeoutExpired:
            status = None
            self.end_all()
        return "".join(lines), status, " ".join(words)

    def end_all(self):
        """End what is left of a call; how many processes that were."""
        began = time.monotonic()
        while processes(self.project.folder) and patience.is_within(10, began):
            time.sleep(0.1)
        survivors = processes(self.project.folder)
        for role, process in survivors:
            with contextlib.suppress(psutil.Error):
                print(f"    left: {role} {process.pid} {process.cmdline()[:6]}", flush=True)
                process.kill()
        return len(survivors)

    def remove_results(self, chance):
        """Some runs are removed, so that there is something to do."""
        runs = sorted((self.project.results / "runs").rglob("metrics.json"))
        for file in chance.sample(runs, chance.randint(1, min(8, len(runs)))):
            shutil.rmtree(file.parent)

    def disturb(self, name, chance):
        """Do a fault, let the campaign come to its end, and compare.

        Returns:
            (its Tally, what was done, lines on what was wrong)
        """
        tally, wrong = Tally(times=1), []
        before = _temporary()
        if name in DURING:
            self.remove_results(chance)
            output, status, words = self.called(DURING[name], chance)
        else:
            words = AT_REST[name](self.project, chance)
            output, status, _ = self.called()
        while True:
            tally.calls += 1
            tally.trained += sum(map(int, TRAINED.findall(output)))
            if status is None:
                tally.hung += 1
                wrong.append(f"no end after {LIMIT:.0f} s: {output[-3000:]}")
            for traceback in _tracebacks(output):
                tally.tracebacks += 1
                wrong.append(traceback)
            if status == 0 or tally.hung or tally.calls == CALLS:
                break
            output, status, _ = self.called()
        if status:
            tally.hung += 1
            wrong.append(f"{CALLS} calls did not bring it to its end: {output[-3000:]}")
        if NOTHING.search(words):
            tally.times, tally.nothing = 0, 1
        tally.left = self.end_all() + len(_temporary() - before)
        wrong += [f"left: {path}" for path in _temporary() - before]
        if not tally.hung:
            unlike = list(differences(self.project, self.twins, self.project.versions))
            tally.different = len(unlike)
            wrong += [f"different: {difference}" for difference in unlike]
        return tally, words, wrong


def _tracebacks(output):
    """Tracebacks in what a call has said; not those with which Snakemake itself meets a full disk,
    or Ctrl-C while it is being imported."""
    for part in output.split("Traceback (most recent call last)")[1:]:
        if "allcores" in part or not re.search(OF_SNAKEMAKE, part):
            yield part[:3000]


def _temporary():
    """What the project keeps outside of its folder while it runs; Snakemake's own folders, which
    are empty, stay where it is killed."""
    return set(Path(ENVIRONMENT["TMPDIR"]).glob("allcores*"))


def prepare(folder):
    """The Campaign, on a file system of its own if this user may mount one, and whether it is."""
    twins = {}
    for version in VERSIONS:
        twins[version] = copy(folder / f"twin{version}")
        write_twin(twins[version], version)
        print(f"a campaign that is left alone, version {version}", flush=True)
        twins[version].call()
    place = folder / "disturbed"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "allcores-soak", place]
    is_mounted = subprocess.run(list(map(str, mount)), capture_output=True).returncode == 0
    project = copy(place, linked=())
    project.config.write_text(CONFIG)
    write_data(place, VERSIONS[0])
    write_model(place, VERSIONS[0])
    ENVIRONMENT["TMPDIR"] = str(folder / "temporary")
    Path(ENVIRONMENT["TMPDIR"]).mkdir()
    print("the campaign that is to be disturbed", flush=True)
    project.call()
    return Campaign(project, twins), is_mounted


def end_processes(folder):
    """Kill whatever works in a folder."""
    for _, process in processes(folder):
        with contextlib.suppress(psutil.Error):
            process.kill()
            process.wait(10)


def table(tallies, seed, minutes, is_mounted):
    """What came of all, as Markdown."""
    count = sum(tally.times for tally in tallies.values())
    yield f"{count} disturbances in {minutes:.0f} minutes, seed {seed}.\n"
    if not is_mounted:
        yield "No file system of its own could be mounted, so that no disk was filled.\n"
    heads = ["fault", *(field.name for field in dataclasses.fields(Tally))]
    yield f"| {' | '.join(heads)} |"
    yield f"|---|{'---:|' * (len(heads) - 1)}"
    for name, tally in sorted(tallies.items()):
        yield f"| {name} | {' | '.join(map(str, dataclasses.astuple(tally)))} |"
    sums = [sum(column) for column in zip(*map(dataclasses.astuple, tallies.values()), strict=True)]
    yield f"| all | {' | '.join(map(str, sums))} |"


def main(flags):
    seed = flags.seed if flags.seed is not None else int(time.time())
    print(f"seed {seed}", flush=True)
    tallies = collections.defaultdict(Tally)
    start_warm_processes()
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder:
        try:
            campaign, is_mounted = prepare(Path(folder))
        except AssertionError as error:  # a campaign that is left alone did not come to its end
            end_processes(folder)
            print(f"not judged: {error}")
            return False
        names = [*DURING, *AT_REST]
        if not is_mounted:
            names.remove("fill the disk")
        names = [name for name in names if flags.only in name]
        began, number, bad = time.monotonic(), 0, []
        try:
            while time.monotonic() - began < 60 * flags.minutes:
                # Every fault once before any is done again.
                turn, place = divmod(number, len(names))
                name = random.Random(f"{seed} {turn}").sample(names, len(names))[place]
                started = time.monotonic()
                tally, words, wrong = campaign.disturb(name, random.Random(f"{seed} {number}"))
                number += 1
                sums = map(sum, zip(*map(dataclasses.astuple, (tallies[name], tally)), strict=True))
                tallies[name] = Tally(*sums)
                lines = [
                    f"{number:4} {time.monotonic() - started:5.1f} s  {name}: {words}; "
                    f"{tally.calls} calls, {tally.trained} trained"
                    f"{'; WRONG' if tally.is_bad else ''}",
                    *wrong,
                ]
                print(*lines, sep="\n    ", flush=True)
                bad += lines if tally.is_bad else []
        finally:
            if is_mounted:
                place = str(campaign.project.folder)
                subprocess.run(["umount", "--lazy", place], check=False)
        lines = list(table(tallies, seed, (time.monotonic() - began) / 60, is_mounted))
    # Bad ones once more: of a long output only the end is kept.
    print(*lines, *bad, sep="\n")
    if flags.markdown:
        Path(flags.markdown).parent.mkdir(parents=True, exist_ok=True)
        Path(flags.markdown).write_text("\n".join(lines) + "\n")
    return any(tally.is_bad for tally in tallies.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=60.0, help="for how long; default: 60")
    add("--seed", type=int, help="of all that is left to chance; default: the time")
    add("--only", default="", help="faults whose names contain this; default: all")
    add("--markdown", help="file for the table of what came of it; default: none")
    os.environ.pop("PYTHONPATH", None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # with the file system unmounted
    sys.exit(main(parser.parse_args()))
