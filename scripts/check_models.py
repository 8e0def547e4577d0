"""Try runs on two samples: read a JSON list of trials from stdin, print a line of JSON for each."""

import importlib
import json
import os
import signal
import sys

from allcores.machine import cores, lean_torch, lifetime
from allcores.study import registry
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
    trials = json.load(sys.stdin)
    runs = [Run.from_json(trial.pop("settings")) for trial in trials]
    for module in {registry.trainer(run) for run in runs}:
        importlib.import_module(module)  # once for all trials: that of estimators takes a second
    for run, trial in zip(runs, trials, strict=True):
        trial["task"] = tasks.named(*trial["task"])
        trial["strategies"] = [*map(Choice.from_json, trial["strategies"])]
        print(json.dumps(sanity.answer(run, **trial)), file=answers)
        lifetime.end_descendants()  # processes that the model has left
