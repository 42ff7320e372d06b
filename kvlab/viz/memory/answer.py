"""The calculator's answer as one piece of HTML: a headline, the exact bytes, pictures, facts, warnings."""

import html
from dataclasses import dataclass

from kvlab.viz.show import BLUE, GREY, INK, PALE, VERMILION


@dataclass(frozen=True)
class Fact:
    """One number that answers one question, and what it means."""

    name: str
    value: str
    more: str = ""
    key: str = ""  # the end of its class: kv-fact-<key>


def grouped(number):
    """An integer whose digits stand in threes, though its text is the digits alone: it pastes as a number."""
    first, *rest = f"{number:,}".split(",")
    return first + "".join(f'<span style="margin-left: 0.22em">{three}</span>' for three in rest)


def times(number, exact):
    """How many times ``exact`` a number is, in words."""
    if not exact:
        return "the cache is empty" if number else "both are empty"
    factor = number / exact
    return "right" if number == exact else f"{factor:,.2f} times the true size"


def milliseconds(seconds):
    """0.0123456 -> '12.3 ms', in three digits."""
    thousand = 1000 * seconds
    return f"{thousand:,.0f} ms" if thousand >= 100 else f"{thousand:#.3g} ms"


def per_second(count, seconds):
    """So many in so many seconds -> '1,234' each second."""
    rate = count / seconds if seconds else 0
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:#.3g}"


def answer_page(headline, about, exact, pictures, facts, warnings=(), notes=(), stale=""):
    """-> HTML string. exact: the bytes, all of them; stale: why this answer is to older settings, if it is.

    headline, about: the size and what it is of, in words. pictures: SVG strings. facts: Facts.
    """
    faded = "opacity: 0.45" if stale else ""
    marked = (
        f'<div class="kv-error" role="alert" style="{_BOX} border-color: {VERMILION}; max-height: 9em; '
        f'overflow: auto"><b>Not computed:</b> {html.escape(stale)}<br><span style="color: {GREY}">'
        "Below is the last answer that could be given.</span></div>"
        if stale
        else ""
    )
    warned = "".join(
        f'<div class="kv-warning" role="status" style="{_BOX} border-color: #E69F00">⚠ {html.escape(each)}</div>'
        for each in warnings
    )
    cards = "".join(_card(fact) for fact in facts)
    noted = "".join(
        f'<div style="margin-top: 6px; color: {GREY}; font-size: 12px">{html.escape(note)}</div>' for note in notes
    )
    return (
        f'<div style="background: white; color: {INK}; font-size: 13px; line-height: 1.4; padding: 8px 10px; '
        f'max-width: 800px">{marked}<div class="{"kv-stale" if stale else "kv-fresh"}" style="{faded}">'
        f'<div style="display: flex; align-items: baseline; gap: 14px; flex-wrap: wrap">'
        f'<span class="kv-size" style="font-size: 30px; line-height: 1.2; font-weight: 600; color: {BLUE}">'
        f"{html.escape(headline)}</span><span>{html.escape(about)}<br>exactly "
        f'<b class="kv-bytes-total" data-bytes="{exact}" style="font-variant-numeric: tabular-nums">'
        f"{grouped(exact)}</b> bytes</span></div>{warned}"
        f'<div style="margin: 10px 0 4px">{"".join(pictures)}</div>'
        f'<div style="display: flex; flex-wrap: wrap; gap: 8px">{cards}</div>'
        f"{noted}</div></div>"
    )


_BOX = "border-left: 4px solid; background: #FAFAFA; padding: 5px 10px; margin: 6px 0;"


def _card(fact):
    return (
        f'<div class="kv-fact-{fact.key}" style="flex: 1 1 170px; max-width: 250px; '
        f'border-top: 2px solid {PALE}; padding: 5px 2px 2px">'
        f'<div style="color: {GREY}; font-size: 12px">{html.escape(fact.name)}</div>'
        f'<div class="kv-value" style="font-size: 17px; font-weight: 600; line-height: 1.35">'
        f'{html.escape(fact.value)}</div><div style="font-size: 12px">{html.escape(fact.more)}</div></div>'
    )
