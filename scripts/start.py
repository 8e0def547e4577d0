"""Run a program in the warm process of a snakemake invocation; without one, start it here.

    python -I -S scripts/start.py SOCKET CALLER PROGRAM [ARGUMENT ...]

This exits with the program's exit status. The program ends when the process CALLER does, the parent
of this one. It imports little, so it starts in 20 ms. See allcores_study/campaign/warm_start.py.
"""

import signal

# Until there is a program to forward it to, Ctrl-C just ends this process.
signal.signal(signal.SIGINT, signal.SIG_DFL)

import ctypes  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import socket  # noqa: E402
import sys  # noqa: E402

PR_SET_PDEATHSIG = 1  # prctl(2)
# Seconds to wait for an answer of the warm process, which may have to import much first.
PATIENCE = 60.0
SIGNALS: list[int] = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # ignored under nohup
    SIGNALS.append(signal.SIGHUP)  # sent when a terminal is closed


def warm(path: str, command: list[str], forwarded: list[int]) -> int:
    """Run a command in a warm process and return its exit status.

    Args:
        forwarded: list to which each forwarded signal is added.

    Raises:
        OSError: the warm process does not run it; the message gives the reason.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        folder, name = os.path.split(path)
        inside = os.open(folder, os.O_PATH)
        connection.settimeout(PATIENCE)
        # The path of a socket has at most 108 characters.
        connection.connect(f"/proc/self/fd/{inside}/{name}")

        def forward(number: int) -> None:
            forwarded.append(number)
            connection.sendall(bytes([number]))

        def stop_and_go_on(number: int, frame: object) -> None:
            forward(signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            forward(signal.SIGCONT)

        # A signal's byte must not come before the request.
        for number in SIGNALS:
            signal.signal(number, lambda number, frame: forwarded.append(number))
        request: object = {
            "command": command,
            "environment": dict(os.environ),
            "folder": os.getcwd(),  # noqa: PTH109 - pathlib takes 10 ms to import
            "cores": list(os.sched_getaffinity(0)),
        }
        request = json.dumps(request).encode()
        socket.send_fds(connection, [len(request).to_bytes(8, "big")], [0, 1, 2])
        connection.sendall(request)
        for number in SIGNALS:
            signal.signal(number, lambda number, frame: forward(number))
        signal.signal(signal.SIGTSTP, stop_and_go_on)
        for number in tuple(forwarded):
            forward(number)
        answers = connection.makefile()
        answer = answers.readline()
        if answer != "started\n":
            raise OSError(answer.strip() or "the warm process has ended")
        connection.settimeout(None)
        try:
            answer = answers.readline()
        except ConnectionError:
            answer = ""
        if not answer and not forwarded:
            raise OSError("it has ended, and the program with it")
        return int(answer or 1)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    path, caller, *command = sys.argv[1:]
    # Also where the warm process belongs to another, such as the caller of snakemake.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(caller):
        sys.exit("the caller has ended")
    forwarded: list[int] = []
    try:
        status = warm(path, command, forwarded)
    except OSError as error:
        if forwarded:  # to stop
            sys.exit(1)
        print(f"starting without the warm process: {error}", file=sys.stderr, flush=True)
        if os.fstat(0).st_size:  # a file, which the program that ended may have read
            os.lseek(0, 0, os.SEEK_SET)
        os.execv(sys.executable, [sys.executable, *command, "--die-with-parent", caller])
    if status < 0:
        if -status in SIGNALS:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
