"""Every lesson prints what is stored in it, here and on another processor; and nbval really compares."""

import re
import tempfile

import pytest
from nbval.plugin import get_sanitize_patterns

from kvlab.commands.normalise import IGNORED, joined
from kvlab.paths import ROOT
from tests.notebooks.make import LESSONS, as_stored, code, load, notebook, printed, run_nbval, save

OTHER_PROCESSOR = {
    # The plainest code paths of MKL and PyTorch, as on a processor without wide vectors; and one thread, so
    # that sums are taken in another order.
    "MKL_CBWR": "COMPATIBLE",
    "ATEN_CPU_CAPABILITY": "default",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}

each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def test_a_changed_value_fails_and_an_unchanged_one_passes(tmp_path):
    good = save(notebook(code("x = 6"), code("print(x * 7)", printed("42\n"))), tmp_path / "good.ipynb")
    bad = save(notebook(code("x = 5"), code("print(x * 7)", printed("42\n"))), tmp_path / "bad.ipynb")
    assert run_nbval(good).returncode == 0
    run = run_nbval(bad)
    assert run.returncode == 1 and "Cell outputs differ" in run.stdout


def test_a_changed_value_in_a_lesson_fails(tmp_path):
    content = load(LESSONS[0])
    content["cells"] = changed_print(content["cells"])
    run = as_stored(save(content, tmp_path / LESSONS[0].name))
    assert run.returncode == 1 and "Cell outputs differ" in run.stdout, run.stdout[-2000:]


@each_lesson
def test_a_lesson_prints_something_that_is_compared(path):
    changed_print(load(path)["cells"])


def changed_print(cells):
    """The cells up to the first compared one that prints, which now prints something else."""
    for index, cell in enumerate(cells):
        source = joined(cell["source"])
        prints = any(output["output_type"] == "stream" for output in cell.get("outputs", []))
        if prints and "print(" in source and not IGNORED.search(source):
            changed = {**cell, "source": source.replace("print(", 'print("changed", ')}
            return [*cells[:index], changed]
    raise AssertionError("no cell prints anything that is compared")


def test_an_ignored_cell_is_run_but_not_compared(tmp_path):
    measured = "# NBVAL_IGNORE_OUTPUT: the time of day\nimport time; print(time.time())"
    path = save(notebook(code(measured, printed("0.0\n"))), tmp_path / "time.ipynb")
    assert run_nbval(path).returncode == 0
    path = save(notebook(code(measured + "; 1 / 0", printed("0.0\n"))), tmp_path / "error.ipynb")
    assert run_nbval(path).returncode == 1


@pytest.mark.ahead(work=as_stored)
@each_lesson
def test_outputs_are_as_stored(path, ahead):
    assert ahead.returncode == 0, ahead.stdout[-4000:]


def elsewhere(path):
    """Without the real model, too: what it says is not compared, and a reader may not have it."""
    with tempfile.TemporaryDirectory() as nothing:
        return as_stored(path, KVLAB_CACHE=nothing, **OTHER_PROCESSOR)


@pytest.mark.ahead(work=elsewhere)
@each_lesson
def test_outputs_do_not_depend_on_the_processor(path, ahead):
    assert ahead.returncode == 0, ahead.stdout[-4000:]


def test_the_other_processor_reaches_the_kernel(tmp_path):
    names = sorted(OTHER_PROCESSOR)
    source = f"import os; print([os.environ[x] for x in {names}], os.listdir(os.environ['KVLAB_CACHE']))"
    values = [OTHER_PROCESSOR[name] for name in names]
    path = save(notebook(code(source, printed(f"{values} []\n"))), tmp_path / "processor.ipynb")
    run = elsewhere(path)
    assert run.returncode == 0, run.stdout[-2000:]


def test_a_late_output_is_waited_for(tmp_path):
    """nbval would give up after 5 s; a cell's own output may take longer than that to arrive."""
    from tests.notebooks import patience

    class Item:
        output_timeout = 5

    item = Item()
    patience.pytest_collection_modifyitems([item, object()])
    assert item.output_timeout == patience.SECONDS > 5
    path = save(notebook(code("print(1)", printed("1\n"))), tmp_path / "loaded.ipynb")
    assert "tests.notebooks.patience" in run_nbval(path, PYTEST_ADDOPTS="--trace-config").stdout


SANITIZE = (ROOT / "tests" / "notebooks" / "sanitize.cfg").read_text(encoding="utf-8")


def test_sanitising_is_sparing():
    patterns = get_sanitize_patterns(SANITIZE)
    assert 0 < len(patterns) <= 5
    assert SANITIZE.count("regex:") == SANITIZE.count("replace:") == len(patterns)
    for block in SANITIZE.split("\n\n")[1:]:
        assert block.startswith("# "), f"without a reason: {block!r}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<Thing at 0x7f3a5c0012ab>", "<Thing at ADDRESS>"),
        ("[with cache: 7.2 tokens a second] 42 tokens", "[with cache: RATE tokens a second] 42 tokens"),
        ("loading: 100%|####| 30/30 [00:01<00:00, 21.3it/s]", "loading: PROGRESS"),
        ("max difference 0.125, 42 of 300 tokens, 0x1f, 12% of 3|4", None),
    ],
)
def test_sanitising_leaves_values_alone(text, expected):
    result = text
    for pattern, replacement in get_sanitize_patterns(SANITIZE):
        result = re.sub(pattern, replacement, result)
    assert result == (expected or text)
