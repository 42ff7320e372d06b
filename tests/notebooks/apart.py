"""A function called in a process of its own. On Linux the process begins with the slow imports done."""

import contextlib
import io
import multiprocessing
import sys
import traceback

SECONDS = 900  # no lesson takes that long, however busy the machine is
IMPORTS = [
    "torch",
    "tests.interpreting",
    "torch._dynamo",
    "matplotlib.pyplot",
    "IPython.display",
    "ipywidgets",
    "pytest",
]

# Where a fork after such imports may crash, each process starts from nothing.
FORKS = sys.platform == "linux"
CONTEXT = multiprocessing.get_context("forkserver" if FORKS else "spawn")


def start():
    """Begin with the imports. Later processes have the environment and the folder of this moment."""
    if FORKS:
        CONTEXT.set_forkserver_preload(IMPORTS)
        multiprocessing.forkserver.ensure_running()


def apart(work, seconds=SECONDS, **arguments):
    """What ``work(**arguments)`` returns. All of it has to be picklable; what is printed is lost.

    Raises RuntimeError where the work raises anything; EOFError if the process dies; TimeoutError.
    """
    answers, answer = CONTEXT.Pipe(duplex=False)
    with answers:
        process = CONTEXT.Process(target=_answer, args=(answer, work, arguments))
        process.start()
        answer.close()
        try:
            if not answers.poll(seconds):
                raise TimeoutError(f"{work.__name__} takes more than {seconds} s, with {arguments}")
            result, failure = answers.recv()
        finally:
            process.terminate()
            process.join()
    if failure:
        raise RuntimeError(failure)
    return result


def _answer(answer, work, arguments):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            found = work(**arguments), None
        except BaseException:
            found = None, traceback.format_exc()
    answer.send(found)
