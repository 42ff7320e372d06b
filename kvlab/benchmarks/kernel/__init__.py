"""Paged attention on this machine's GPU: first whether it is right, then how near it comes to the memory.

``python3 -m kvlab bench kernel``, or ``python3 -m kvlab.benchmarks.kernel`` where there is only PyTorch and
Triton. Decode is bound by reading keys and values, so times are given as bytes a second, beside a copy, a
read and the data sheet. Between runs the cache is emptied. The numbers go to kvlab/kernels/measured/.
"""

from kvlab.kernels.backend import mode
from kvlab.paths import ROOT

MEASURED = ROOT / "kvlab" / "kernels" / "measured"


def kernel(say=lambda row: None):
    """Rows of the benchmark; one that says why, where nothing can be measured. say: gets each as it comes."""
    why = obstacle()
    if why:
        rows = [("paged attention on a GPU", "", "not measured", why)]
        say(rows[0])
        return rows
    from kvlab.benchmarks.kernel.gpu import Gpu
    from kvlab.benchmarks.kernel.run import Run

    return Run(Gpu(), MEASURED, say).rows()


def obstacle():
    """Why nothing can be measured here -> str, or None."""
    found = mode()
    if found.backend != "triton":
        return found.why
    from kvlab.kernels.language import interpreted

    return "this process has imported Triton to interpret" if interpreted else None
