"""Try runs on two samples each: read a JSON list of trials from stdin, print a line for each."""

import json
import os
import sys

from allcores.machine import cores, lean_torch, lifetime
from allcores.study.run import Run

if __name__ == "__main__":
    lifetime.die_with_caller(sys.argv)
    cores.set_thread_variables(cores.allowed())
    lean_torch.import_torch()
    from allcores.training import sanity

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # a model's own prints go to stderr, not among the answers
    for trial in json.load(sys.stdin):
        run = Run.from_json(trial["settings"])
        print(json.dumps(sanity.tried_out(run, trial["shape"], trial["classes"])), file=answers)
