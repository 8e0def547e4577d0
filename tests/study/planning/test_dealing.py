"""Which runs share a job: as many jobs as keep the cores busy, of about equal length."""

import dataclasses

from conftest import RUN

from allcores_study.config import grid
from allcores_study.config.run import Conditions
from allcores_study.planning import dealing


def runs_of(*models):
    """40 Runs of each of these models."""
    entry = {"batch_size": 8, "epochs": 1, "optimizer": {"name": "sgd", "lr": 0.1}}
    study = {"datasets": ["digits"], "folds": 5, "models": [*models], "seeds": [*range(8)]}
    config = {"models": dict.fromkeys(models, entry), "studies": {"a": study}}
    return list(grid.expand(config).runs.values())


def test_runs_that_are_timed_alone_or_are_long_share_no_job():
    assert dealing.is_short(RUN, 1.0, Conditions())
    assert not dealing.is_short(RUN, 1.0, Conditions(exclusive=True))
    assert not dealing.is_short(RUN, dealing.SHORT, Conditions())


def test_jobs_are_as_many_as_keep_the_cores_busy():
    one, two = runs_of("mlp"), runs_of("mlp", "lenet")
    for runs, cores, seconds, wanted, jobs, per_job, expected in [
        (one, 2, 1.0, 10, None, None, 4),  # as many as take ten seconds
        (one, 2, 0.2, 10, None, None, 2),  # one for each core
        (one, 2, 0.7, 10, None, None, 2),  # not three, the last of which would run alone
        (one, 48, 0.01, 10, None, None, 40),  # no more than runs
        (two, 2, 1.0, 10, None, None, 8),  # of two kinds four for each core
        (two, 2, 0.1, 10, None, None, 4),  # that take two seconds each
        (two, 2, 0.01, 10, None, None, 2),  # one for each core
        (one, None, 0.1, 600, 100, None, 1),  # of a cluster
        (one, None, 9.0, 600, 4, None, 4),  # as many as it may have at once
        (one, None, 9.0, 600, 100, None, 12),  # that take half a minute each
        (one, 2, 0.01, 10, None, 7, 6),
    ]:
        groups = dealing.deal(runs, lambda run, s=seconds: s, cores, wanted, jobs, per_job)
        assert len(groups) == expected
        assert sorted(run.path for group in groups for run in group) == sorted(
            run.path for run in runs
        )
        assert max(map(len, groups)) - min(map(len, groups)) <= 1


def test_jobs_take_about_equally_long_where_runs_do_not():
    seconds = {run.path: 0.1 + run.seed for run in runs_of("mlp")}
    groups = dealing.deal(runs_of("mlp"), lambda run: seconds[run.path], 2, 100)
    took = [sum(seconds[run.path] for run in group) for group in groups]
    assert len(took) == 2 and abs(took[0] - took[1]) <= max(seconds.values())
    assert sum(map(len, groups)) == 40


def test_each_job_has_runs_of_several_sizes():
    """Of some networks stacks are trained, of others not: a job of these would take longest."""
    runs = runs_of("mlp")
    sizes = {run.path: run.seed for run in runs}
    runs = [
        dataclasses.replace(run, model=dataclasses.replace(run.model, options={"size": run.seed}))
        for run in runs
    ]
    groups = dealing.deal(runs, lambda run: 0.01, 2, 10)
    assert [{sizes[run.path] // 2 for run in group} for group in groups] == [{0, 2}, {1, 3}]
    # Of few runs each job has those of one size, for the larger a stack, the faster.
    (first, *_) = dealing.deal(runs, lambda run: 0.01, 8, 10)
    assert len({sizes[run.path] for run in first}) == 1


def test_strips_make_no_job_longer(monkeypatch):
    """Nor larger than `runs_per_job`; a few long runs among short ones are dealt out as before."""
    runs = runs_of("mlp") + runs_of("lenet")
    runs = [dataclasses.replace(run, seed=run.seed + 8 * n) for n in range(2) for run in runs]
    one_kind = [run for run in runs if run.model.name == "mlp"]
    for per_job in (3, 7, 33):
        groups = dealing.deal(one_kind, lambda run: 0.01, 2, 10, runs_per_job=per_job)
        assert max(map(len, groups)) <= per_job
    seconds = {run.path: 3.0 if place % 20 == 0 else 0.1 for place, run in enumerate(one_kind)}
    groups = dealing.deal(one_kind, lambda run: seconds[run.path], 2, 100)
    took = [sum(seconds[run.path] for run in group) for group in groups]
    assert len(took) == 2 and abs(took[0] - took[1]) <= 3.1
    assert sum(map(len, groups)) == len(one_kind)
