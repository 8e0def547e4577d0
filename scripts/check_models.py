"""Try runs on two samples: read a JSON list of trials from stdin, print a line of JSON for each."""

import json
import os
import signal
import sys

from allcores.machine import cores, lean_torch, lifetime
from allcores.study.run import Choice, Run

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a traceback
    lifetime.die_with_caller(sys.argv)
    lifetime.adopt_orphans()
    if sys.argv[1:]:
        sys.exit(__doc__)
    cores.set_thread_variables(cores.allowed())
    lean_torch.import_torch()
    from allcores.tasks import base as tasks
    from allcores.training import sanity

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a model prints goes to stderr, not between the answers
    for trial in json.load(sys.stdin):
        run = Run.from_json(trial.pop("settings"))
        trial["task"] = tasks.named(*trial["task"])
        trial["strategies"] = [*map(Choice.from_json, trial["strategies"])]
        print(json.dumps(sanity.answer(run, **trial)), file=answers)
        lifetime.end_descendants()  # processes that the model has left
