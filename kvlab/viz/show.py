"""What a cell shows: pictures that say what they show, tables that read alike in text and in HTML."""

import html
import io
import re

from cycler import cycler
from matplotlib import pyplot as plt

# Okabe and Ito's palette, told apart with any colour vision; the first three differ in lightness too.
BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"
INK, GREY, PALE, WHITE = "#222222", "#777777", "#E8E8E8", "#FFFFFF"
SHARPNESS = 2  # pixels drawn for each pixel shown, for screens that have them


def style():
    """The course's look, for every matplotlib figure made afterwards."""
    plt.rcParams.update(
        {
            "figure.figsize": (7.5, 3.2),
            "figure.dpi": 96,
            "figure.constrained_layout.use": True,
            "font.size": 11,
            "axes.prop_cycle": cycler(color=[BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE]),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlelocation": "left",
            "axes.titlesize": 12,
            "axes.edgecolor": GREY,
            "axes.labelcolor": INK,
            "legend.frameon": False,
            "lines.linewidth": 2,
            "hatch.linewidth": 0.7,
        }
    )


class Picture:
    """A figure as PNG with a description for those who cannot see it; the figure is closed."""

    def __init__(self, figure, alt):
        if not alt.strip():
            raise ValueError("a picture needs alt text: one sentence that says what it shows")
        self.alt = " ".join(alt.split())
        buffer = io.BytesIO()
        # No software version and no date: the same figure gives the same bytes.
        figure.savefig(buffer, dpi=figure.dpi * SHARPNESS, metadata={"Software": None})
        self.png = buffer.getvalue()
        self.width, self.height = (int(inches * figure.dpi) for inches in figure.get_size_inches())
        plt.close(figure)

    def _repr_mimebundle_(self, include=None, exclude=None):
        size = {"width": self.width, "height": self.height, "alt": self.alt}
        return {"image/png": self.png, "text/plain": self.alt}, {"image/png": size}


class Shown:
    """Base of what has a widget for live kernels, and text and HTML for everywhere else.

    A subclass gives ``widget()``, ``text()`` and ``html()``. A page that is opened without running it shows
    the HTML; without ipywidgets there is the text. (No SVG in it: untrusted pages lose that.)
    """

    def _repr_mimebundle_(self, include=None, exclude=None):
        static = {"text/plain": self.text(), "text/html": self.html()}
        try:
            bundle = self.widget()._repr_mimebundle_()
        except ImportError:
            return static
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        return {**data, **static}, metadata


class Table:
    """Rows under a header; numbers stand to the right, also those that are text already ("4.0", "12%").

    Integers get their thousands apart.

    ``columns``: names. ``rows``: one sequence a row, as many entries as columns. ``caption``: above it.
    """

    def __init__(self, columns, rows, caption=""):
        self.columns = [str(column) for column in columns]
        self.rows = [list(row) for row in rows]
        self.caption = caption
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} entries under {len(self.columns)} columns: {row}")

    def __repr__(self):
        cells = [self.columns, *([_text(entry) for entry in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = []
        for row, entries in zip(cells, [self.columns, *self.rows], strict=True):
            padded = [
                text.rjust(width) if _is_number(entry) else text.ljust(width)
                for text, width, entry in zip(row, widths, entries, strict=True)
            ]
            lines.append("  ".join(padded).rstrip())
        return "\n".join([self.caption] * bool(self.caption) + lines)

    def _repr_html_(self):
        def cell(tag, entry):
            side = "right" if _is_number(entry) else "left"
            return f'<{tag} style="text-align: {side}">{html.escape(_text(entry))}</{tag}>'

        numeric = [any(_is_number(row[i]) for row in self.rows) for i in range(len(self.columns))]
        head = "".join(
            f'<th scope="col" style="text-align: {"right" if number else "left"}">{html.escape(column)}</th>'
            for column, number in zip(self.columns, numeric, strict=True)
        )
        body = "".join(f"<tr>{''.join(cell('td', entry) for entry in row)}</tr>" for row in self.rows)
        caption = f"<caption>{html.escape(self.caption)}</caption>" if self.caption else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _is_number(entry):
    return not isinstance(entry, str) or bool(re.fullmatch(r"[-+]?[\d,]*\.?\d+ ?%?", entry))


def _text(entry):
    if entry is None:
        return ""
    return f"{entry:,}" if isinstance(entry, int) else str(entry)


def bill(ledgers, caption="The bill"):
    """Ledgers side by side: {name: Ledger} -> Table, one row each, exact integers."""
    columns = ["", "FLOPs", "KV bytes read", "written", "held", "copied"]
    rows = [(name, b.flops, b.kv_read, b.kv_written, b.kv_held, b.copied) for name, b in ledgers.items()]
    return Table(columns, rows, caption)
