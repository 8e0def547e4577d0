"""Real runs of tiny problems, made in one line."""

import os
import sys

# Hundreds of processes import the same: bytecode is written for the next one.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import processors  # noqa: E402

processors.imitate()  # what is imported from here on asks which instructions there are

from allcores.machine import cores  # noqa: E402

# As scripts/train.py does, before torch is imported: several tests fork from this process.
cores.set_thread_variables(1)
import atexit  # noqa: E402
import dataclasses  # noqa: E402
import functools  # noqa: E402
import gc  # noqa: E402
import math  # noqa: E402
import signal  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402

import hypothesis  # noqa: E402
import patience  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
import torch._dynamo  # noqa: E402

from allcores.parallel.optimizers import OptimizerMaker  # noqa: E402
from allcores.parallel.reports import RankFailedError  # noqa: E402
from allcores_study.campaign import warm_start  # noqa: E402
from allcores_study.config import grid  # noqa: E402
from allcores_study.config.run import (  # noqa: E402
    Conditions,
    Entry,
    Run,
)
from allcores_study.data import preparation  # noqa: E402
from allcores_study.interactive import workflow  # noqa: E402
from allcores_study.tasks import base as tasks  # noqa: E402
from allcores_study.training import experiment, resuming, run_request  # noqa: E402
from allcores_study.training.checkpoints import Checkpoints  # noqa: E402
from allcores_study.training.optimizers import make_chosen  # noqa: E402
from allcores_study.training.run_request import RunRequest  # noqa: E402

ROOT = Path(__file__).parents[1]
# Nothing of the calling environment's own threads or allotment may reach what a test starts; what
# says how to be like another processor has to, as this process is also like it.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("SLURM_", "OMP_")) and not name.endswith("_NUM_THREADS")
}

RUN = Run(
    # 53 training samples: no batch size or number of workers divides them.
    dataset=Entry("tiny", "fake", {"count": 53, "test": 20, "size": 8, "classes": 3}),
    model=Entry("mlp", "mlp", {"hidden": [7]}),
    optimizer=Entry("SGD", "SGD", {"lr": 0.05, "momentum": 0.9}),
    loss=Entry("CrossEntropyLoss", "CrossEntropyLoss", {}),
    schedule=Entry("cosine", "cosine", {}),
    strategy=Entry("serial", "serial", {}),
    batch_size=10,
    epochs=2,
    crop=1,
    flip=True,
    precision="fp32",
    memory_format="contiguous",
    folds=None,
    fold=None,
    train_size=None,
    workers=1,
    servers=0,
    threads_per_worker=1,
    seed=0,
)
# Batch norm and dropout, which an MLP lacks.
LENET = Entry("lenet", "lenet", {"width": 0.3})
MOBILENET = Entry("mobilenet", "mobilenet", {"width": 0.1})
DDP = Entry("ddp", "ddp", {})


# What hypothesis draws is the same in each call; pytest's first lines say so.
hypothesis.settings.register_profile(
    "fixed", derandomize=True, deadline=None, max_examples=40, database=None
)
hypothesis.settings.load_profile("fixed")
# nohup and background jobs of a shell ignore signals, which must not reach what tests start.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
# Nor do the processes that tests fork go through all that is imported.
gc.freeze()


def usual(classes):
    """The task of that many classes; None: of a number."""
    return tasks.named("classification", classes) if classes else tasks.named("regression", 1)


def task_of(facts):
    return tasks.named(facts.task, facts.outputs)


def vary(run=RUN, **changes):
    """The run, otherwise configured."""
    return dataclasses.replace(run, **changes)


def using(strategy, workers, run=RUN, nodes=1, **changes):
    """The run with a strategy, on so many workers of each node if it takes more than one."""
    section = {"strategies": {strategy.label: {"name": strategy.name} | strategy.options}}
    asked = {"strategies": [strategy.label], "workers": [workers], "nodes": [nodes]}
    asked["threads_per_worker"] = [1]
    ((_, nodes, workers, servers, _),) = grid.layouts(section, asked)
    counts = {"nodes": nodes, "workers": workers, "servers": servers}
    return vary(run, strategy=strategy, **counts, **changes)


def optimizer_maker(name, **options):
    """What strategies are given to make one of torch's optimizers."""
    return OptimizerMaker(functools.partial(make_chosen, Entry(name, name, options)))


# Whose the processes are from which tests fork programs: as in a campaign, and calls of snakemake.
OF_PROGRAMS, OF_CALLS = "programs", "calls"


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # once for all workers of pytest-xdist
        start_warm_processes()


def start_warm_processes():
    """Start the processes from which tests fork, to end with this one.

    They spare each program the imports, which is most of the time that many a test takes.
    """
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    os.environ["ALLCORES_TESTS"] = folder.name
    for owner in (OF_PROGRAMS, OF_CALLS):
        program = ROOT / "tests" / "warm" / f"{owner}.py"
        warm_start.start(f"{folder.name}/{owner}.log", program, place_of(owner))


def place_of(owner):
    """Where one of the processes of start_warm_processes() has its socket."""
    return Path(os.environ["ALLCORES_TESTS"], owner)


@functools.cache
def warm(owner, program):
    """The command of a program that is forked: from OF_PROGRAMS or OF_CALLS."""
    return tuple(map(str, warm_start.command(program, True, place_of(owner))))


@pytest.fixture(scope="module")
def warm_calls():
    """Calls from Python fork snakemake, and its programs, as those of a Project do."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(workflow, "SNAKEMAKE", [*warm(OF_CALLS, ROOT / "tests/warm/call.py")])
        patched.setenv(warm_start.THERE, str(place_of(OF_PROGRAMS)))
        yield


def program(name):
    """The command of scripts/NAME.py, forked."""
    return [*warm(OF_PROGRAMS, ROOT / "tests/warm/program.py"), ROOT / "scripts" / f"{name}.py"]


def train_program(forked=True):
    """The command of scripts/train.py."""
    if forked:
        return list(warm(OF_PROGRAMS, ROOT / "tests" / "warm" / "train.py"))
    return [sys.executable, str(ROOT / "scripts" / "train.py")]


# The files whose tests take longest, which begin first: else one of them would be alone in the end.
LONGEST = (
    *("test_slurm_sites", "test_slurm"),
    *("test_cross_validate", "test_strategies", "test_failures", "test_final", "test_workflow"),
    *("test_warm_start", "test_nodes", "test_bad_input", "test_kept_whole", "test_worker"),
    *("test_sweeps", "test_several", "test_plan", "test_marks", "test_stack", "test_metrics"),
    *("test_training_options", "test_two_calls", "test_launch", "test_status", "test_docs"),
    *("test_wheel", "test_worker_ends", "test_shared_model", "test_strangers_programs"),
)


# What repeats at length what a test of seconds also holds: `make soak` runs these. Name of a test
# -> the ids of parameters with which it is short enough.
LONG = {
    "test_as_on_another_processor": (),
    "test_more_candidates_are_added_to_those_that_are_trained": (),
    "test_they_reach_the_accuracy_of_serial_training": (),
    "test_pushing_and_pulling_rarely_learns_too": (),
    "test_two_nodes_of_two_workers_train_as_four_workers_and_as_serial": (
        *("ddp", "two_servers", "shared_memory"),
    ),
    "test_a_run_on_two_nodes_that_is_told_to_stop_goes_on_with_the_same_bits": (),
    "test_an_interrupted_run_ends_with_the_same_bits": (
        *("hogwild", "shared_memory", "local_sgd", "parameter_server"),
    ),
    "test_a_run_that_is_told_to_stop_in_an_epoch_goes_on_at_that_step": (
        *("serial", "local_sgd", "async_parameter_server"),
    ),
    "test_a_killed_rank_ends_the_run_with_its_name": (
        *("serial-worker", "ring-worker", "hogwild-worker", "parameter_server-server"),
    ),
    "test_the_tests_of_all_strategies_hold_it_to_what_it_promises": (),
    "test_when_snakemake_ends_nothing_is_left": (),
    "test_a_terminal_that_is_closed_ends_a_call_in_good_order": (),
    "test_the_weights_are_those_of_a_cold_start": (),
    "test_the_command_of_the_documentation_trains_it": (),
    "test_a_run_whose_cores_others_use_is_contended": (),
    "test_a_benchmark_runs": (),
    "test_an_example_under_torchrun_gives_the_same_loss_by_either_backend": (),
    "test_reductions_give_what_gloo_gives": ("2",),
    "test_collectives_give_what_gloo_gives": ("2",),
    "test_ddp_trains_to_the_weights_of_gloo": ("2",),
    "test_what_else_a_study_can_end_with": (),
    "test_a_warm_process_that_is_killed_loses_no_run": (),
    "test_a_run_that_is_going_on_is_seen_from_outside_whatever_its_log_says": (),
    "test_sigterm_ends_a_call_that_waits_for_missing_files": (),
    "test_twenty_runs_side_by_side_do_not_collide": (),
    "test_a_node_of_which_nothing_is_heard_ends_the_run": (),
    "test_how_many_stand_together_decides_no_bit": ("one number",),
    "test_a_job_that_is_ended_keeps_what_it_has_trained": (),
    "test_another_workflow_has_it_as_a_module": (),
    "test_it_is_told_when_all_candidates_diverge": (),
    "test_killing_snakemake_leaves_nothing_and_the_next_call_resumes": (),
    "test_one_that_fails_takes_no_other_with_it": (),
    "test_a_study_is_trained_where_it_is_called": (),
    "test_what_it_can_do_is_said": (),
    "test_a_study_of_what_was_added_is_trained": (),
    "test_adding_a_figure_is_adding_a_file": (),
    "test_a_table_is_learnt_as_well_as_by_scikit_learns_own_network": ("diabetes",),
    "test_a_whole_tree_of_processes_computes_alike": (),
    "test_the_times_of_files_decide_nothing": (),
    "test_a_table_follows_its_results_whatever_came_between": (),
    "test_a_program_that_cannot_write_says_so_in_a_line": (),
    "test_no_memory_is_taken_per_step": (),
    "test_workers_follow_serial_with_crops_flips_and_pixels_without_a_class": (
        *("CrossEntropyLoss-ddp", "DiceLoss-shared_memory", "CrossEntropyLoss-hogwild"),
    ),
    "test_a_rank_that_hangs_is_named": ("2-asleep",),
    "test_a_signal_ends_all_ranks_and_leaves_a_word_in_the_log": ("SIGKILL-",),
    "test_a_client_that_is_ended_takes_its_run_along": ("15",),
    "test_without_a_warm_process_a_run_starts_by_itself": ("dead",),
    "test_workers_that_do_not_wait_for_each_other_stop_after_the_same_step": ("hogwild",),
    "test_loading_by_torch_leaves_no_threads_behind": (),
    "test_any_module_that_can_be_imported_can_be_trained": ("mine.plain:Net",),
    "test_a_model_that_does_not_fit_is_told_in_a_line": (
        *("wide", "dictionary", "mistaken", "missing", "exits"),
    ),
    "test_a_final_model_stays_until_a_call_ends_it": (),
    "test_classes_of_ones_own_and_strategies_that_fit": (),
    "test_what_users_of_scikit_learn_give_in_a_folder_called_config": (),
    "test_a_killed_process_leaves_no_lock": (),
    "test_the_final_network_is_a_refit_by_plain_torch_of_the_choice_of_scikit_learn": (),
    "test_what_follows_from_forced_runs_is_made_again": (),
    "test_what_is_forced_is_made": (),
    "test_summary_and_dag_show_what_is_there": (),
    "test_one_more_candidate_trains_what_depends_on_it": (),
    "test_a_task_that_was_added_is_trained_and_scored": (),
    "test_metrics_are_scikit_learns_on_the_written_predictions": (),
    "test_a_choice_that_is_not_what_was_chosen_is_made_again": ("gone",),
    "test_a_lost_inner_run_is_trained_and_chosen_by_again": (),
    "test_the_second_says_so_and_ends": ("1",),
    "test_a_choice_is_made_of_the_scores_that_there_are": (),
    "test_how_many_share_a_job_trains_nothing_again_and_changes_no_bit": (),
    "test_what_is_damaged_is_trained_again_and_nothing_else": (
        *("gone-weights.pt", "cut-metrics.json"),
    ),
    "test_a_resumed_run_records_all_its_sessions": (),
    "test_a_study_of_labels_says_how_well_each_is_predicted": (),
    "test_a_study_of_several_numbers_says_how_well_each_is_predicted": (),
    "test_a_plan_that_is_ended_says_nothing_of_its_own_code": (),
    "test_each_way_of_calling_finds_the_workflow_and_its_profile": (
        *("elsewhere-Snakefile", ".-None"),
    ),
    "test_the_worker_that_hangs_in_code_of_the_user_is_named": ("save-ddp", "share-ring"),
    "test_no_server_is_named_for_a_worker_that_hangs": ("start",),
    "test_the_worker_that_does_not_come_is_blamed": ("barrier",),
    "test_what_a_model_forks_ends_with_its_run": ("ends-True",),
    "test_what_a_figure_imports_counts_and_one_that_fails_is_told_in_its_place": (),
    "test_an_edit_reruns_what_has_loaded_the_module": (),
    "test_a_model_that_reads_arguments_draws_from_numpy_or_gives_float64_is_reported": (),
    "test_a_call_that_is_ended_leaves_nothing": ("Ctrl-C",),
    "test_threads_that_do_not_survive_a_fork_are_told_of": (),
    "test_two_nodes_train_together": (),
    "test_a_killed_run_of_shared_memory_ends_with_the_weights_of_one_never_killed": (),
    "test_a_model_that_hangs_on_one_worker_is_named_there": ("shared_memory",),
    "test_changed_data_are_noticed_once_snakemakes_records_are_gone": (),
    "test_the_example_runs": ("ddp",),
    "test_a_worker_that_is_late_after_a_pause_does_not_miss_the_next": (),
    "test_a_large_layer_and_one_that_is_used_twice_train_with_every_option": (
        *("local_sgd_1", "ddp", "shared_memory"),
    ),
    "test_the_columns_of_the_two_best_models_are_in_the_order_in_which_they_matter": (),
    "test_it_is_an_increase_of_errors_of_each_seed": (),
    "test_a_study_of_images_has_none_and_loads_no_model": (),
    "test_it_is_what_scikit_learn_finds_by_itself": (),
    "test_a_damaged_run_is_left_out_and_named": (),
    "test_a_study_without_its_baseline_has_no_best_models": (),
    "test_only_tables_of_2_to_100_columns_have_it": (),
    "test_a_graph_predicts_what_the_run_does": ("table", "pixels"),
    "test_every_strategy_trains_on_three_nodes": ("ring",),
}


def save_after_each_epoch(monkeypatch):
    """Also after short ones, in this process and those that it forks."""
    monkeypatch.setattr(resuming, "INTERVAL", 0)
    monkeypatch.setattr(resuming, "SHARE", math.inf)


def pytest_collection_modifyitems(items):
    place_of = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place_of.get(item.module.__name__, len(LONGEST)))
    for item in items:
        name, _, parameters = item.name.partition("[")
        if parameters.removesuffix("]") not in LONG.get(name, (parameters.removesuffix("]"),)):
            item.add_marker("long")


def stop_after(monkeypatch, laboratory, run, epochs):
    """Train a run that ends in an error once so many epochs are saved."""
    save_after_each_epoch(monkeypatch)
    save = Checkpoints.save

    def save_and_fail(self, checkpoint):
        save(self, checkpoint)
        if len(checkpoint["epochs"]) == epochs:
            raise MemoryError("in the middle of a test")

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", save_and_fail)
        with pytest.raises((MemoryError, RankFailedError), match="in the middle of a test"):
            laboratory.trained(run)


class Laboratory:
    """Conducts runs in a folder of its own."""

    def __init__(self, folder):
        self.folder = folder

    def data(self, entry=RUN.dataset):
        folder = self.folder / "data" / entry.label
        if not folder.exists():
            preparation.prepare(entry, self.folder / "downloads", folder)
        return folder

    def trained(self, run, name="run", curves=False):
        """What metrics.json says, and the final weights; {}: of an inner run, which keeps none."""
        output = self.folder / name
        request = self.request(run, name, conditions=Conditions(curves=curves))
        metrics = experiment.train_and_score(request)
        torch.set_num_threads(1)
        return metrics, {} if run.inner_folds else torch.load(output / "weights.pt")

    def request(self, run, name="run", **more):
        """The RunRequest of a run, with further fields of it."""
        given = {"run": run, "data_folder": self.data(run.dataset)}
        given |= {"checkpoint_folder": self.checkpoints(name), "output": self.folder / name}
        return RunRequest(**given | more)

    def checkpoints(self, name):
        return self.folder / "checkpoints" / name

    def arguments(self, run, name="run", job=None, **more):
        """The same as arguments of scripts/train.py, in a file of that name or of `job`."""
        file = self.folder / "jobs" / f"{job or name}.json"
        run_request.write(file, self.folder, [self.request(run, name, **more)])
        return ["--job", str(file)]

    def train(self, run, name="run", *, forked=True, more=None, **popen):
        """The same by scripts/train.py, as a process; a forked one is another one's client."""
        return subprocess.Popen(
            [*train_program(forked), *self.arguments(run, name, **(more or {}))],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            env=ENVIRONMENT,
            **popen,
        )

    def finish(self, run, name="run", *, expect=0, **options):
        """What scripts/train.py says, which ends by itself."""
        process = self.train(run, name, **options)
        output = patience.ended(process, 300)
        assert process.returncode == expect, output
        return output


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """What is remembered of files is forgotten after the tests."""
    folder = str(tmp_path_factory.mktemp("cache"))
    os.environ["XDG_CACHE_HOME"] = ENVIRONMENT["XDG_CACHE_HOME"] = folder


@pytest.fixture
def laboratory(tmp_path):
    return Laboratory(tmp_path)


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """What a run gives, which many tests compare others with: each is trained once."""
    laboratory = Laboratory(tmp_path_factory.mktemp("reference"))
    known = {}

    def train_and_score(run):
        key = run.to_json()
        if key not in known:
            known[key] = laboratory.trained(run)
        return known[key]

    return train_and_score


def same_weights(one, other):
    """Bit for bit."""
    assert one.keys() == other.keys()
    return all(torch.equal(one[key], other[key]) for key in one)
