"""Tables and figures: what each file says of itself, and that adding one is adding a file."""

import inspect

import pytest
from project import copy

from allcores_study.analysis import products, study

FACTS = products.StudyFacts(study="s", baseline="serial", target=0.5, references=())


@pytest.mark.parametrize("name", products.sections())
def test_a_product_says_what_it_is_and_is_made_from_what_there_is(name):
    module, kind = products.load(name), products.kind_of(name)
    assert module.TITLE
    assert len(FACTS.filled(module.CAPTION).split()) > 8, "a caption is a sentence"
    names = list(products.sections())
    for function in filter(None, (getattr(module, kind), getattr(module, "sentences", None))):
        for argument in inspect.signature(function).parameters:
            own = argument.removeprefix(study.OTHER)
            assert own in {*study.TIDY, *names, "predictions", "datasets", "facts"}
            if own in names and kind == "table" and function.__name__ == "table":
                assert names.index(own) < names.index(name), "it is made before"


def test_all_are_listed_and_there():
    assert products.LAST not in products.sections().values()
    assert {*products.LEADING} <= products.sections().keys()


MINE = """
from allcores_study.analysis import style

TITLE = "memory"
CAPTION = "Peak memory of each run of the study {study}, in the order in which they are listed."


def figure(runs):
    drawn, (panel,) = style.panels(1)
    panel.plot(runs["peak_memory_mb"], "o")
    return drawn


def sentences(runs, facts):
    yield f"The largest run took {runs['peak_memory_mb'].max():,.0f} MB; against {facts.baseline}."
"""


def test_adding_a_figure_is_adding_a_file(tmp_path):
    project = copy(tmp_path / "project", linked=())
    asked = {"models": ["mlp"], "strategies": ["serial"]}
    project.configure(lambda config: config["studies"]["first"].update(asked))
    (project.folder / "scripts/allcores_study/analysis/figures/memory.py").write_text(MINE)
    study = "results/mine/studies/first"
    project.call("report_first")
    assert (project.folder / study / "memory_figure.svg").stat().st_size > 1000
    assert "MB; against serial" in (project.folder / study / "report.html").read_text()
    assert project.planned("report_first") == {}
    project.edit("scripts/allcores_study/analysis/figures/memory.py", '"o"', '"x"')
    assert project.planned("report_first") == {"report_first": 1, "total": 1}


def test_what_a_figure_imports_counts_and_one_that_fails_is_told_in_its_place(tmp_path):
    project = copy(tmp_path / "project", linked=())
    asked = {"models": ["mlp"], "strategies": ["serial"]}
    project.configure(lambda config: config["studies"]["first"].update(asked))
    figure = "scripts/allcores_study/analysis/figures/memory.py"
    text, _, _ = MINE.partition("def sentences")  # by which it would be imported anyway
    (project.folder / figure).write_text("import looks\n" + text.replace('"o"', "looks.MARKER"))
    (project.folder / "looks.py").write_text('MARKER = "o"')
    project.call("report_first")
    assert project.planned("report_first") == {}
    project.edit("looks.py", '"o"', '"x"')
    assert project.planned("report_first") == {"report_first": 1, "total": 1}
    project.edit(figure, "looks.MARKER", "1 / 0")
    project.call("report_first")
    log = (project.results / "logs" / "report" / "first.log").read_text()
    assert "ZeroDivisionError: division by zero" in log
    assert "division by zero" in (project.results / "studies/first/memory_figure.svg").read_text()
    assert (project.results / "studies/first/report.html").stat().st_size > 5000
