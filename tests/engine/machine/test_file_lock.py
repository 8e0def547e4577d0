"""A file is held by one at a time, also where the file system has no flock(2)."""

import errno
import fcntl
import os
import signal
import time

import pytest
from conftest import RUN

from allcores import files
from allcores.machine import lifetime
from allcores_study.training.checkpoints import Checkpoints


def fails(number):
    def call(*arguments):
        raise OSError(number, os.strerror(number))

    return call


@pytest.fixture(params=[None, errno.ENOSYS, errno.EOPNOTSUPP], ids=str)
def file(request, monkeypatch, tmp_path):
    """A file, on a file system with flock(2) and on two without."""
    if request.param:
        monkeypatch.setattr(fcntl, "flock", fails(request.param))
    path = tmp_path / "lock"
    path.touch()
    return path


def test_a_second_one_is_turned_away_until_the_first_has_closed_it(file):
    with file.open("r+") as first, file.open("r+") as second:
        files.hold(first)
        with pytest.raises(BlockingIOError):
            files.hold(second, wait=False)
        first.close()
        files.hold(second, wait=False)


def test_it_is_held_by_what_was_forked_meanwhile(file):
    first = os.open(file, os.O_RDWR)
    files.hold(first)
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
    os.close(first)
    with file.open("r+") as second:
        with pytest.raises(BlockingIOError):
            files.hold(second, wait=False)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        files.hold(second)


def test_where_there_are_no_locks_it_says_what_to_do(file, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", fails(errno.ENOSYS))
    monkeypatch.setattr(fcntl, "fcntl", fails(errno.ENOLCK))
    with file.open("r+") as opened, pytest.raises(OSError, match="does not lock files") as error:
        files.hold(opened)
    assert str(file) in str(error.value)


def test_a_run_is_trained_once_without_flock(laboratory, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", fails(errno.ENOSYS))
    with (
        Checkpoints(laboratory.checkpoints("run"), "", epochs=1),
        pytest.raises(ValueError, match="another process trains the same run"),
    ):
        laboratory.trained(RUN)


def test_what_was_begun_to_be_written_goes_whatever_happens(tmp_path):
    """torch.save() reports a full disk by a RuntimeError."""
    with pytest.raises(RuntimeError), files.whole(tmp_path / "model.pt") as part:
        part.write_text("half")
        raise RuntimeError("PytorchStreamWriter failed writing file")
    assert list(tmp_path.iterdir()) == []


def test_a_signal_without_a_name_is_told_by_its_number():
    assert lifetime.how_it_ended(-signal.SIGKILL).startswith("was killed by SIGKILL; the system")
    assert lifetime.how_it_ended(-35) == "was killed by signal 35"
