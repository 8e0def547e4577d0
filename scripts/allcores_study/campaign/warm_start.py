"""Warm start: programs forked from a process that has imported what they need.

You can skip this to understand training. It saves each job of snakemake some seconds and changes
nothing else; a program that cannot be forked starts by itself.

    snakemake ─┬─ start.py, one per job: passes on signals, and the exit status
               └─ warm process, serve() ── keeper, one per start.py, _keep() ── program ── ranks

Whatever ends one of these processes ends all to the right of it, and a keeper ends with its
start.py. A batch system, however, may send SIGTERM to all of them at once: then each program saves
and stops, and its keeper and warm process wait for it.

multiprocessing's forkserver does not suffice: it serves only the process that started it, and
passes on neither the environment nor signals.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import platform
import runpy
import select
import shutil
import signal
import socket
import struct
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen
from typing import TYPE_CHECKING, Any, NoReturn

from allcores.machine.lifetime import (
    CLIENT,
    adopt_orphans,
    die_with_parent,
    end_descendants,
)
from allcores_study.programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

THERE = "ALLCORES_WARM"  # names a variable: the folder of a warm process that the caller started
SOCKET = "socket"
BACKLOG = 1000  # how many connections may wait to be accepted


def command(program: str | Path, is_warm: bool, place: Path | None = None) -> list[Any]:
    """Return the command that runs a program which ends with this process; arguments may follow.

    Args:
        is_warm: whether a warm process exists when the command runs; else the program starts by
            itself.
        place: the folder of its socket; None: folder().
    """
    if not is_warm:
        return [sys.executable, program, "--die-with-parent", os.getpid()]
    # Without site-packages Python itself starts in 10 ms.
    client = [sys.executable, "-I", "-S", PROGRAMS / "start.py", (place or folder()) / SOCKET]
    return [*client, os.getpid(), program]


def folder() -> Path:
    """Return where the warm process of this process, or of its caller, has its socket.

    In containers, several may have one number.
    """
    own = f".snakemake/warm_process_{platform.node()}_{os.getpid()}"
    return Path(os.environ.get(THERE) or own).absolute()


def start(
    log: str | Path,
    program: str | Path | None = None,
    place: Path | None = None,
    environment: dict[str, str] | None = None,
) -> Callable[[], None]:
    """Start a warm process, which ends with this one.

    Without a place, nothing is started if the caller of this process has started one.

    Args:
        log: file for its output.
        program: the program to start, which calls serve(); None for scripts/warm_process.py.
        place: the folder of its socket; None: folder().
        environment: its variables; None: those of this process.

    Returns:
        A function that ends it.
    """
    if place is None and THERE in os.environ:
        return lambda: None
    place = place or folder()

    def stop() -> None:
        atexit.unregister(stop)
        process.terminate()
        process.wait()
        shutil.rmtree(place, ignore_errors=True)

    try:
        process = _launch(place, log, program or PROGRAMS / "warm_process.py", environment)
    except OSError as error:  # for example, a file system without sockets
        shutil.rmtree(place, ignore_errors=True)
        print(f"the warm process cannot be started: {error}", file=sys.stderr)
        return lambda: None
    return atexit.register(stop)


def _launch(
    place: Path, log: str | Path, program: str | Path, environment: dict[str, str] | None
) -> Popen[bytes]:
    """Start the warm process; its socket exists when this returns."""
    shutil.rmtree(place, ignore_errors=True)  # left by a process that had the same number
    place.parent.mkdir(exist_ok=True)
    place.mkdir(mode=0o700)  # nobody else may enter
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener, Path(log).open("w") as output:
        descriptor = os.open(place, os.O_PATH)
        # The path of a socket has at most 108 characters.
        listener.bind(f"/proc/self/fd/{descriptor}/{SOCKET}")
        os.close(descriptor)
        listener.listen(BACKLOG)
        return Popen(
            [sys.executable, program, place, str(listener.fileno()), str(os.getpid())],
            env=environment,
            stdin=DEVNULL,
            stdout=output,
            stderr=STDOUT,
            pass_fds=[listener.fileno()],
            start_new_session=True,  # Ctrl-C reaches start.py and, through it, the programs
        )


def serve(
    folder: str,
    listener: Any,
    caller: str,
    warm_up: Callable[[], object],
    *more: Callable[[], object],
) -> None:
    """Fork a program for each client that asks, until the caller of the warm process ends.

    Args:
        folder: of the socket; deleted at the end.
        listener: file descriptor of the socket, to which the programs' clients connect.
        caller: process id of the caller.
        warm_up: imports what the first program needs.
        more: import what others need, as soon as no client waits.
    """
    signal.signal(signal.SIGTERM, partial(_stop, folder, int(caller)))
    try:
        die_with_parent(int(caller), signal.SIGTERM)
        adopt_orphans()
        listener = socket.socket(fileno=int(listener))
        later, imported = [*more], _ImportedFiles(warm_up)
        while True:
            while later and not select.select([listener], [], [], 0)[0]:
                imported.add(later.pop(0))
            connection, _ = listener.accept()
            with connection:
                client, user, _ = struct.unpack("3i", _credentials(connection))
                if user == os.getuid():
                    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
                    _fork(_keep, listener, connection, client, imported)
    except Exception:
        traceback.print_exc()
    finally:
        _end(folder)


def _stop(folder: str, caller: int, number: int, frame: FrameType | None) -> NoReturn:
    """Handle SIGTERM: end at once if the caller is dead, else when the programs have ended.

    All of it is done here: importing runs many callbacks, in which an exception would be dropped.
    """
    if os.getppid() == caller:
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
    _end(folder)


def _end(folder: str) -> NoReturn:
    shutil.rmtree(folder, ignore_errors=True)
    end_descendants()
    os._exit(0)  # tearing down torch's modules would take another 0.7 s


def _credentials(connection: socket.socket) -> bytes:
    """Return process id, user and group of the other side, as the kernel knows them (unix(7))."""
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))


class _ImportedFiles:
    """The files of the modules that warm_up() imports, to notice when they change."""

    def __init__(self, warm_up: Callable[[], object]) -> None:
        self.begun = time.time_ns()
        self.states: dict[str, tuple[int, int, int]] = {}
        self.add(warm_up)

    def add(self, warm_up: Callable[[], object]) -> None:
        gc.disable()  # collections take a third of the time of large imports
        warm_up()
        # A collection in a program would write to, and so copy, every page of what is imported.
        gc.freeze()
        gc.enable()
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        states = {file: _state(file) for file in files if file}
        self.states = {file: state for file, state in states.items() if state} | self.states

    def changed(self) -> str | None:
        """Return the name of a file that has changed since it was imported, or None."""
        for file, state in self.states.items():
            if state != _state(file) or state[-1] > self.begun:
                return file
        return None


def _state(file: str) -> tuple[int, int, int] | None:
    try:
        stat = Path(file).stat()
        # Not st_ctime: uv links packages from its cache, so that removing another environment
        # changes it.
        return stat.st_ino, stat.st_size, stat.st_mtime_ns
    except OSError:
        return None


def _fork(target: Callable[..., object], *arguments: Any) -> int:
    """Call target(*arguments) in a process that ends when this one does; return its id."""
    parent, handled = os.getpid(), (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
    signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
        return child
    try:
        die_with_parent(parent)
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
        target(*arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _keep(
    listener: socket.socket, connection: socket.socket, client: int, imported: _ImportedFiles
) -> NoReturn:
    """Run a program: pass signals to it and its exit status back; end it if its client ends."""
    listener.close()
    adopt_orphans()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _name(f"keep {client}")
    length, files, _, _ = socket.recv_fds(connection, 8, 3)
    request = json.loads(connection.recv(int.from_bytes(length), socket.MSG_WAITALL))
    changed = imported.changed()
    if changed:
        connection.sendall(f"{changed} has changed since it was imported\n".encode())
        os._exit(0)
    program = _fork(_become, request, files, client)
    connection.sendall(b"started\n")
    end: Any = os.pidfd_open(program)
    while end not in select.select([connection, end], [], [])[0]:
        number = connection.recv(1)
        if not number:
            end_descendants()
            os._exit(0)
        kill = os.killpg if number[0] in (signal.SIGSTOP, signal.SIGCONT) else os.kill
        kill(program, number[0])
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    end_descendants()
    connection.sendall(f"{status}\n".encode())
    os._exit(0)


def _name(text: str) -> None:
    """Set the name of this process that ps and top show, 15 characters."""
    Path("/proc/self/comm").write_text(text)


def _become(request: dict[str, Any], files: list[int], client: int) -> NoReturn:
    """Run a program as if it had been started by the client.

    It keeps the connection open, as its ranks do: the client sees it closed when all have ended.
    """
    os.setpgid(0, 0)
    for descriptor, file in enumerate(files):
        os.dup2(file, descriptor)
    os.chdir(request["folder"])
    os.sched_setaffinity(0, request["cores"])
    os.environ.clear()
    os.environ.update(request["environment"], **{CLIENT: str(client)})
    program, *arguments = request["command"]
    sys.argv = [program, *arguments, "--die-with-parent", str(os.getppid())]
    _name(Path(program).name)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = 1
    try:
        runpy.run_path(program, run_name="__main__")
        status = 0
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        else:
            status = error.code or 0
    except KeyboardInterrupt:  # before the program handles it itself
        print(f"{sys.argv[0]}: stopped by SIGINT; the same call goes on", file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
