"""A pytest plugin (``-p tests.notebooks.patience``) that gives nbval the patience a busy machine needs.

nbval waits five seconds for each piece of a cell's output, and has no option for it. A laptop that also
trains a model can take longer. The notebooks lie in a temporary folder, where no conftest.py of ours takes
effect; hence a plugin.

It also spares each run of a notebook the second in which jsonschema, which nbformat imports, would build a
grammar of international web addresses: without that package there is one check less that no notebook needs.
"""

import sys

sys.modules.setdefault("rfc3987_syntax", None)  # as if it were not installed

SECONDS = 60


def pytest_collection_modifyitems(items):
    for item in items:
        if hasattr(item, "output_timeout"):
            item.output_timeout = SECONDS
