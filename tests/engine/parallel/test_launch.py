"""The processes of a run: threads, failures, exchange."""

import errno
import gc
import importlib
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import patience
import psutil
import pytest
import torch
from conftest import ENVIRONMENT, ROOT

from allcores.machine import allocator, cores
from allcores.parallel import launch
from allcores.parallel.reports import RankFailedError


def run(target, workers=3, threads=1, **how):
    launch.run_ranks(target, workers, 0, threads, **how)


def failure_of(target, **how):
    """What is said when a run fails, which it has to do at once."""
    began = time.monotonic()
    with pytest.raises(RankFailedError) as failure:
        run(target, **how)
    assert patience.is_within(5, began)
    return str(failure.value)


def test_freed_memory_is_used_again(tmp_path):
    def target(world):
        allocator.keep_freed_memory()
        for _ in range(50):
            torch.ones(2**24)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        (tmp_path / "faults").write_text(str(faults))

    run(target, workers=1)
    # A fresh tensor of that size costs 16,384; some do, until there is room for all.
    assert int((tmp_path / "faults").read_text()) < 50 * 16384 / 2


def test_what_a_rank_starts_can_be_told_to_end():
    def target(world):
        program = subprocess.Popen(["sleep", "60"])
        program.terminate()
        assert program.wait(30) == -signal.SIGTERM
        fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        fork.start()
        fork.terminate()
        fork.join(30)
        assert fork.exitcode == -signal.SIGTERM

    run(target, workers=1)


def test_no_rank_goes_on_before_all_have_joined(tmp_path, monkeypatch):
    init_process_group = torch.distributed.init_process_group

    def slow_at_rank_1(*args, rank, **kwargs):
        init_process_group(*args, rank=rank, **kwargs)
        if rank == 1:
            time.sleep(0.2)
            (tmp_path / "joined").touch()

    monkeypatch.setattr(torch.distributed, "init_process_group", slow_at_rank_1)

    def target(world):
        assert (tmp_path / "joined").exists()

    run(target)


@pytest.mark.parametrize("others", ["in an exchange", "computing", "asleep"])
def test_a_killed_rank_is_named_whatever_the_others_do(others):
    def target(world):
        if world.rank == 2:
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGKILL)
        elif others == "in an exchange":
            world.all_reduce(torch.ones(1))
        elif others == "computing":
            while True:
                torch.ones(10).sum()
        else:
            time.sleep(1000)

    assert re.search(r"worker 2 \(rank 2\).*killed by SIGKILL", failure_of(target))


@pytest.mark.parametrize("status", [0, 7])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_rank_that_leaves_too_early_is_reported(status, workers):
    """As one does whose model, or a library in C, calls exit()."""

    def target(world):
        if world.rank == 0:
            os._exit(status)
        time.sleep(1000)

    said = failure_of(target, workers=workers)
    assert f"worker 0 (rank 0) ended with status {status} before its training did" in said


def test_an_exception_of_any_length_is_reported_with_rank_and_traceback():
    """A pipe holds 64 KiB: a rank would wait forever unless somebody reads on."""

    def target(world):
        if world.rank == 1:
            raise RuntimeError(f"begin {'x' * 1_000_000} end")
        world.all_reduce(torch.ones(1))

    text = failure_of(target)
    assert text.startswith("worker 1 (rank 1) failed:\nTraceback")
    assert "raise RuntimeError(f\"begin {'x' * 1_000_000} end\")" in text
    assert "\n[...]\n" in text
    assert text.endswith("x end\n")
    assert len(text) < 30_000


def test_nothing_is_left_in_the_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def target(world):
        assert not list(tmp_path.iterdir()), "whoever is killed leaves nothing either"

    run(target)


@pytest.mark.parametrize(("victim", "how"), [(0, "stopped"), (2, "asleep")])
def test_a_rank_that_hangs_is_named(victim, how):
    def target(world):
        for _ in range(3):
            world.clock.enter("compute")
            world.all_reduce(torch.ones(1))
        if world.rank == victim:
            world.clock.enter("compute")
            os.kill(os.getpid(), signal.SIGSTOP) if how == "stopped" else time.sleep(1000)
        world.clock.enter("wait")
        world.all_reduce(torch.ones(1))

    began = time.monotonic()
    with pytest.raises(RankFailedError) as failure:
        run(target, timeout=2)
    assert 2 < time.monotonic() - began < 20
    said = {"stopped": "is stopped by a signal", "asleep": "hangs"}[how]
    assert "no rank made any progress for 2 s" in str(failure.value)
    assert f"worker {victim} (rank {victim})" in str(failure.value)
    assert f"{said}, in the phase compute" in str(failure.value)


def test_progress_of_any_rank_keeps_a_run_alive():
    def target(world):
        for _ in range(25 if world.rank == 0 else 0):
            world.clock.enter("compute")
            time.sleep(0.1)
        world.barrier()

    run(target, timeout=2)


class OddError(Exception):
    """As of libraries: it cannot be restored from its arguments."""

    def __init__(self, place, value):
        super().__init__(f"{place}: {value}")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (KeyError("a"), KeyError),
        (OddError(1, 2), None),
        (ValueError("long" * 9999), None),
        (ValueError("it is", torch.ones(2)), ValueError),
        (ValueError("it is", torch.ones(2, requires_grad=True) * 2), ValueError),
    ],
)
def test_what_a_rank_raised_is_the_cause(error, cause):
    def target(world):
        raise error

    with pytest.raises(RankFailedError, match=type(error).__name__) as failure:
        run(target, workers=2)
    assert isinstance(failure.value.cause, cause) if cause else failure.value.cause is None


def test_what_only_a_rank_can_import_is_told_in_words(tmp_path):
    (tmp_path / "only_there.py").write_text("class Bad(Exception): pass")

    def target(world):
        sys.path.insert(0, str(tmp_path))
        raise importlib.import_module("only_there").Bad("row 7 is damaged")

    with pytest.raises(RankFailedError, match="row 7 is damaged") as failure:
        run(target, workers=2)
    assert failure.value.cause is None


def test_a_complaint_is_not_taken_for_the_cause(monkeypatch):
    """Whichever clock says that it was first."""

    def target(world):
        if world.rank == 0:
            raise ArithmeticError("diverged")
        monkeypatch.setattr(launch.time, "time", lambda: 0.0)
        raise RuntimeError("Connection closed by peer")

    with pytest.raises(RankFailedError, match="diverged") as failure:
        run(target, workers=3)
    assert isinstance(failure.value.cause, ArithmeticError)


def test_what_was_opened_is_closed_if_nothing_can_be_forked(monkeypatch):
    def fails(*arguments):
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(launch, "_fork", fails)

    def opened(calls):
        for _ in range(calls):
            with pytest.raises(BlockingIOError):
                run(print)
        gc.collect()
        files = len([*Path("/proc/self/fd").iterdir()])
        return files, resource.getrlimit(resource.RLIMIT_NOFILE)

    before, limit = opened(1)  # what is opened once, and for good, is open by now
    files, limit_then = opened(20)
    assert files < before + 20  # a thread of an earlier test may open or close some meanwhile
    assert limit_then == limit


def test_a_full_disk_is_told_in_a_line():
    def target(world):
        raise OSError(errno.ENOSPC, "No space left on device", "somewhere")

    said = failure_of(target, workers=1)
    assert "No space left on device: 'somewhere'" in said
    assert "Traceback" not in said


def test_a_run_needs_no_room_in_dev_shm(tmp_path):
    """Semaphores would take a page each there, of which a container may have one."""
    code = "import sys; sys.path.insert(0, 'scripts')\n"
    code += "from allcores.parallel import launch\nimport torch\n"
    code += "def target(world): world.barrier(); world.all_reduce(torch.ones(1))\n"
    code += "launch.run_ranks(target, 3, 0, 1); print('done')"
    shell = 'mount -t tmpfs -o size=4k none /dev/shm && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", shell, "sh", sys.executable, "-c", code]
    process = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, text=True, capture_output=True)
    if (process.returncode and "unshare" in process.stderr) or "mount" in process.stderr:
        pytest.skip("no mount namespace can be made here")
    assert process.stdout == "done\n", process.stderr


def test_ranks_listen_on_loopback_only(tmp_path):
    def target(world):
        world.all_reduce(torch.ones(1))
        # Where the host's name stands for another address, this is what keeps gloo off it.
        assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
        listening = [
            connection.laddr.ip
            for connection in psutil.Process().net_connections()
            if connection.status == psutil.CONN_LISTEN
        ]
        (tmp_path / str(world.rank)).write_text(" ".join(listening))
        world.all_reduce(torch.ones(1))

    run(target)
    addresses = {ip for file in tmp_path.iterdir() for ip in file.read_text().split()}
    assert addresses and addresses <= {"127.0.0.1", "::1"}


def test_each_process_has_its_share_of_threads(tmp_path):
    def target(world):
        (tmp_path / str(world.rank)).write_text(str(torch.get_num_threads()))

    run(target, workers=2, threads=2)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["2", "2"]


def test_core_budget(monkeypatch, tmp_path):
    def limited(budget, file=None, text=""):
        if file:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(text)
        assert cores.allowed() == budget, (file, text)

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(12))
    for variable in (*cores.OF_JOB, cores.OF_TASK):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(cores, "CGROUP", tmp_path)
    monkeypatch.setattr(cores, "MEMBERSHIP", tmp_path / "membership")
    limited(12, "membership", "0::/user.slice/job\n")
    limited(12, "cpu.max", "max 100000\n")
    limited(3, "cpu.max", "350000 100000\n")
    limited(2, "user.slice/job/cpu.max", "250000 100000\n")
    (tmp_path / "user.slice" / "job" / "cpu.max").unlink()
    limited(1, "cpu.max", "50000 100000\n")
    (tmp_path / "cpu.max").unlink()
    limited(12, "cpu/cpu.cfs_quota_us", "-1\n")
    limited(12, "cpu/cpu.cfs_period_us", "100000\n")
    limited(8, "cpu/cpu.cfs_quota_us", "800000\n")
    limited(8, "membership", "4:cpu,cpuacct:/user.slice/job\n")
    limited(8, "cpu/user.slice/job/cpu.cfs_period_us", "100000\n")
    limited(8, "cpu/user.slice/job/cpu.cfs_quota_us", "-1\n")
    limited(8, "cpu/user.slice/cpu.cfs_period_us", "100000\n")
    limited(5, "cpu/user.slice/cpu.cfs_quota_us", "500000\n")
    limited(8, "cpu/user.slice/cpu.cfs_quota_us", "-1\n")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "4")  # sbatch -n 2: a script has all tasks' cores
    limited(8)
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    limited(4)
    monkeypatch.setenv("LSB_DJOB_NUMPROC", "3")
    limited(3)
