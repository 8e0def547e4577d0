"""How a call of snakemake ends by Ctrl-C or SIGTERM."""

import queue
import signal
import sys
import threading

from allcores.campaign import snakemake_internals as internals


def exit_by_interrupt():
    """From now on, before any job runs, SIGINT ends this process without a traceback."""
    signal.signal(signal.SIGINT, lambda number, frame: sys.exit(130))


def finish_by_signals(workflow, is_submitting):
    """From now on, SIGTERM and SIGINT let running jobs end and start no other.

    A terminal sends Ctrl-C to the jobs, too, which then save and stop. Those on a cluster hear
    nothing of it, so that SIGINT cancels them.

    Snakemake's own ways may hang: its handler of SIGTERM takes a lock that the interrupted main
    thread may hold, and a KeyboardInterrupt may leave one taken for good. So a thread is told, by
    a queue whose put() may interrupt itself.

    Args:
        workflow: Snakemake's.
        is_submitting: whether jobs are submitted to a cluster.
    """
    numbers = queue.SimpleQueue()

    def end():
        while True:
            if numbers.get() == signal.SIGINT and is_submitting:
                internals.leave_running_jobs(workflow)
            else:
                internals.finish_running_jobs(workflow)

    threading.Thread(target=end, daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: numbers.put(number))
