"""Executing one notebook in a fresh kernel, cell by cell, with the clock running."""

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path


class CellError(Exception):
    """A cell did not run to its end; says which one and why."""


@dataclass
class Timing:
    """How long a notebook took, and its slowest cell: (seconds, number)."""

    seconds: float
    slowest: tuple[float, int]


def execute(path, progress=lambda done, total: None, timeout=600):
    """Execute the notebook at ``path``; return it as plain dictionaries, with its outputs, and the timing.

    Cells are numbered as in JupyterLab, [1] being the first code cell. The first one that fails ends the run.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    path = Path(path)
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=timeout,
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    code = [
        index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code" and cell.source.strip()
    ]
    start, slowest = time.monotonic(), (0.0, 0)
    # What the kernel itself says on stderr is not the notebook's; what a cell writes there comes as output.
    with client.setup_kernel(stderr=subprocess.DEVNULL):
        for number, index in enumerate(code, 1):
            progress(number, len(code))
            before = time.monotonic()
            try:
                client.execute_cell(notebook.cells[index], index, execution_count=number)
            except CellExecutionError as error:
                raise CellError(
                    f"cell [{number}]: {error.ename}: {error.evalue}\n{error.traceback}"
                ) from None
            except (CellTimeoutError, DeadKernelError) as error:
                raise CellError(f"cell [{number}]: {str(error).strip()}") from None
            slowest = max(slowest, (time.monotonic() - before, number))
    for cell in notebook.cells:
        if cell.cell_type == "code" and not cell.source.strip():
            cell.execution_count, cell.outputs = None, []
    return dict(notebook), Timing(time.monotonic() - start, slowest)
