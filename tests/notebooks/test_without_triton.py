"""Where Triton cannot be installed the kernel lessons run to their end, and say what ran in its place."""

import pytest

from kvlab.commands.normalise import joined
from tests.notebooks.make import COMMITTED, load
from tests.notebooks.test_claims import end

MISSING = """
import builtins, sys
sys.modules["triton"] = None
_said, _print = [], builtins.print
def print(*words, **options):
    _said.append(" ".join(map(str, words)))
    _print(*words, **options)
builtins.print = builtins.display = print
"""
SAID = """
assert "triton" not in {name for name in sys.modules if sys.modules[name]}
assert any("Triton is not installed" in each for each in _said), _said
"""


def without(name):
    """Run the lesson where Triton cannot be imported -> the traceback it ends with, or ""."""
    cells = load(COMMITTED / f"{name}.ipynb")["cells"]
    code = [joined(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return end([MISSING, *code, SAID])


@pytest.mark.ahead(work=without)
@pytest.mark.parametrize("name", ["17_a_first_kernel", "18_the_paged_kernel"])
def test_the_lesson_completes_and_says_so(name, ahead):
    assert ahead == "", ahead[-1500:]
