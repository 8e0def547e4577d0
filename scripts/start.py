"""Have a warm process of a call of snakemake run a program; without one, start it here.

    python -I -S scripts/start.py SOCKET CALLER PROGRAM [ARGUMENT ...]

It ends as the program does, which ends when the process CALLER, its parent, does (0: whoever that
is). Environment variables in the name of the socket's folder are filled in. It imports little, so
that it starts in 20 ms. See allcores/machine/warm_start.py.
"""

import signal

# Until there is a program to pass it on to, Ctrl-C just ends this.
signal.signal(signal.SIGINT, signal.SIG_DFL)

import json  # noqa: E402
import os  # noqa: E402
import socket  # noqa: E402
import sys  # noqa: E402

# Seconds until the warm process must have answered, which may have to import much first.
PATIENCE = 60.0
PASSED_ON = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup has it
    PASSED_ON.append(signal.SIGHUP)  # of a terminal that was closed


def warm(path, command, told):
    """Run a command in a warm process and return its exit status.

    Args:
        told: list to which the signals are added that are passed on.

    Raises:
        OSError: the warm process does not run it; the text says why.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        folder, name = os.path.split(path)
        above, own = os.path.split(folder)
        folder = os.path.join(above, os.path.expandvars(own))  # noqa: PTH118
        inside = os.open(folder, os.O_PATH)
        connection.settimeout(PATIENCE)
        # The path of a socket has at most 108 characters.
        connection.connect(f"/proc/self/fd/{inside}/{name}")

        def tell(number):
            told.append(number)
            connection.sendall(bytes([number]))

        def stop_and_go_on(number, frame):
            tell(signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            tell(signal.SIGCONT)

        # A signal's byte must not come before the request.
        for number in PASSED_ON:
            signal.signal(number, lambda number, frame: told.append(number))
        request = {
            "command": command,
            "environment": dict(os.environ),
            "folder": os.getcwd(),  # noqa: PTH109 - pathlib takes 10 ms to import
            "cores": list(os.sched_getaffinity(0)),
        }
        request = json.dumps(request).encode()
        socket.send_fds(connection, [len(request).to_bytes(8, "big")], [0, 1, 2])
        connection.sendall(request)
        for number in PASSED_ON:
            signal.signal(number, lambda number, frame: tell(number))
        signal.signal(signal.SIGTSTP, stop_and_go_on)
        for number in tuple(told):
            tell(number)
        answers = connection.makefile()
        answer = answers.readline()
        if answer != "started\n":
            raise OSError(answer.strip() or "the warm process has ended")
        connection.settimeout(None)
        try:
            answer = answers.readline()
        except ConnectionError:
            answer = ""
        if not answer and not told:
            raise OSError("it has ended, and the program with it")
        return int(answer or 1)


if __name__ == "__main__":
    path, caller, *command = sys.argv[1:]
    caller = caller if caller != "0" else str(os.getppid())
    told = []
    try:
        status = warm(path, command, told)
    except OSError as error:
        if told:  # to stop
            sys.exit(1)
        if os.getppid() != int(caller):
            sys.exit("the caller has ended")
        print(f"starting without the warm process: {error}", file=sys.stderr, flush=True)
        os.execv(sys.executable, [sys.executable, *command, "--die-with-parent", caller])
    if status < 0:
        if -status in PASSED_ON:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
