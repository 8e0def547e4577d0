"""Smoke test runs, on two samples each.

It reads a JSON list of requests from stdin and prints a line of JSON for each of them.
"""

import importlib
import json
import os
import signal
import sys

from allcores.machine import cores, lifetime
from allcores_study.config import registry
from allcores_study.config.run import Entry, Run

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a traceback
    lifetime.die_with_caller(sys.argv)
    lifetime.adopt_orphans()
    if sys.argv[1:]:
        sys.exit(__doc__)
    cores.set_thread_variables(cores.allowed())
    importlib.import_module("torch._dynamo")  # as optimizers do: once, not in each trial
    from allcores_study.planning import trials
    from allcores_study.tasks import base as tasks

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a model prints goes to stderr, not between the answers
    requests = json.load(sys.stdin)
    runs = [Run.from_json(request.pop("settings")) for request in requests]
    for module in {registry.trainer(run) for run in runs}:
        importlib.import_module(module)  # once for all tests: that of estimators takes a second
    for run, request in zip(runs, requests, strict=True):
        request["task"] = tasks.named(*request["task"])
        request["strategies"] = [*map(Entry.from_json, request["strategies"])]
        print(json.dumps(trials.answer(run, **request)), file=answers)
        lifetime.end_descendants()  # processes that the model has left
