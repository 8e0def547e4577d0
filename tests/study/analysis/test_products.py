"""Tables and figures: what each file says of itself, and that adding one is adding a file."""

from collections import Counter, defaultdict

import pytest
from project import copy

from allcores_study.analysis import products, study

FACTS = products.StudyFacts(study="s", baseline="serial", target=0.5, references=())


@pytest.mark.parametrize("product", products.by_name().values(), ids=products.by_name())
def test_a_product_says_what_it_is_and_is_made_from_what_there_is(product):
    assert product.title
    assert len(FACTS.filled(product.caption).split()) > 8, "a caption is a sentence"
    assert product.when in {None, *products.CONDITIONS}
    assert product.section in ("{metric}", "data", "speed", "training")
    tables = {
        name for name, known_product in products.by_name().items() if known_product.kind == "table"
    }
    assert product.inputs
    for name in (*product.inputs, *(product.inputs_of_sentences or ())):
        assert name.removeprefix(study.OTHER) in tables | {
            *study.TIDY,
            *("predictions", "datasets", "facts"),
        }
    module = products.load(product.name)
    assert callable(getattr(module, product.kind))


# Condition -> another one that is met where it is.
IMPLIED = defaultdict(tuple) | {"references": ("timed",), "several_setups": ("timed",)}


def test_a_table_that_is_drawn_or_spoken_of_comes_with_its_figure():
    """Else a rule would ask for a table that no study of that kind has."""
    for product in products.by_name().values():
        for name in (*product.inputs, *(product.inputs_of_sentences or ())):
            if name in products.by_name():
                assert products.by_name()[name].when in (None, product.when, *IMPLIED[product.when])


def test_their_places_in_the_report_are_different():
    orders = [product.order for product in products.by_name().values()]
    assert orders == sorted(orders)
    counts = Counter(orders)
    assert [name for name, product in products.by_name().items() if counts[product.order] > 1] == []


MINE = """
from allcores_study.analysis import style

TITLE = "memory"
SECTION = "training"
ORDER = 25
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
