"""How far the runs of a config are, from what its calls have recorded."""

import time

from allcores import programs
from allcores.campaign import board, closing, journal, state
from allcores.machine import cores

PATIENCE = 5.0  # seconds that a call may take until its journal is there


class Status:
    """Looks at a ResultsFolder and at the runs of a grid.Table in it."""

    def __init__(self, folder, table):
        self.folder, self.table = folder, table
        self.is_current = state.Current(folder, table)

    def _look(self):
        """(the journal.CallRecord, its JobRecords, whether it is over, list of RunState)."""
        call, jobs = journal.read_call(self.folder), journal.read_jobs(self.folder)
        is_over = call is None or call.is_going_on is False
        is_spread = call and call.cores is None
        queue = state.queue(self.folder, self.table) if is_spread else None
        run_states = state.states(self.folder, self.table, jobs, self.is_current, is_over, queue)
        return call, jobs, is_over and not queue, list(run_states)

    def lines(self):
        """A line on all runs, and one for each job that is running."""
        return self._lines(*self._look())

    def _lines(self, call, jobs, is_over, run_states):
        available = call.cores if call else cores.allowed()
        yield from board.lines(run_states, jobs, self.folder, self.table, call, available, is_over)
        if call and is_over:
            yield "no call of snakemake is going on here"

    def failures(self, arguments):
        """Why jobs failed, and how to run just one again.

        Args:
            arguments: what follows --configfile in the command.
        """
        call, jobs, _, run_states = self._look()
        # On a cluster, the same call as before tries again what failed.
        is_here = call is None or not (call.is_spread or call.batch_job)
        failed = {run_state.path for run_state in run_states if run_state.state == state.FAILED}
        for job in jobs:
            if job.state != journal.FAILED or (job.rule == "train" and job.title not in failed):
                continue
            yield from ("", *closing.failure(job))
            if job.rule == "train" and is_here:
                target = self.folder.metrics(job.title)
                again = f"{programs.snakemake()} --cores all {target} --configfile {arguments}"
                yield f"    again: {again}"

    def watch(self):
        """Show the lines every second, until no call is going on and none begins soon."""
        screen, started = board.Board(None), time.monotonic()
        try:
            while True:
                began = time.perf_counter()
                call, jobs, is_over, run_states = self._look()
                screen.show(list(self._lines(call, jobs, is_over, run_states)))
                # Of a call on another machine only its runs can be seen.
                is_seen = any(run_state.state == state.RUNNING for run_state in run_states)
                is_over = is_over or (call.is_going_on is None and not is_seen)
                are_done = all(run_state.state == state.DONE for run_state in run_states)
                if is_over and (are_done or time.monotonic() - started > PATIENCE):
                    break
                time.sleep(max(board.EVERY, (time.perf_counter() - began) / board.SHARE))
        finally:
            screen.close()
