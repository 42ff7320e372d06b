"""Answers as one piece of HTML each: pictures, numbers, and what had to be said in words."""

import html
import re
from dataclasses import dataclass

from kvlab.viz.show import BLUE, GREY, INK, ORANGE, PALE, VERMILION


@dataclass(frozen=True)
class Fact:
    """One number that answers one question, and what it means."""

    name: str
    value: str
    more: str = ""
    key: str = ""  # the end of its class: kv-fact-<key>


def grouped(number):
    """An integer with commas that are seen and not copied: its text is the digits alone, and so pastes."""
    first, *rest = f"{number:,}".split(",")
    return first + "".join(f'<span class="kv-three">{three}</span>' for three in rest)


def times(number, exact, what="the true size"):
    """How many times ``exact`` a number is, in words."""
    if not exact:
        return "the cache is empty" if number else "both are empty"
    return "right here" if number == exact else f"{number / exact:,.2f} times {what}"


# (from so many seconds, in units of so many, called)
_DURATIONS = (
    *((7200, 3600, "h"), (120, 60, "min"), (0.9995, 1, "s"), (0.9995e-3, 1e-3, "ms")),
    *((0.9995e-6, 1e-6, "µs"), (0, 1e-9, "ns")),
)


def duration(seconds):
    """0.0123456 -> '12.3 ms': three digits, in the unit in which they are read best."""
    one, unit = next((one, unit) for least, one, unit in _DURATIONS if seconds >= least)
    count = seconds / one
    return f"{count:,.0f} {unit}" if count >= 99.95 else f"{count:#.3g} {unit}"


def per_second(count, seconds):
    """So many in so many seconds -> '1,234' each second."""
    rate = count / seconds if seconds else 0
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:#.3g}"


def answer_page(headline, about, exact, pictures, facts, warnings=(), notes=(), stale=""):
    """-> HTML string. exact: the bytes, all of them; stale: why this answer is to older settings, if it is.

    headline, about: the size and what it is of, in words. pictures: SVG strings. facts: Facts.
    """
    top = (
        '<div style="display: flex; align-items: baseline; gap: 14px; flex-wrap: wrap">'
        f'<span class="kv-size" style="font-size: 30px; line-height: 1.2; font-weight: 600; color: {BLUE}">'
        f"{html.escape(headline)}</span><span>of cache {html.escape(about)}<br>exactly "
        f'<b class="kv-bytes-total" data-bytes="{exact}" style="font-variant-numeric: tabular-nums">'
        f"{grouped(exact)}</b> bytes</span></div>"
    )
    drawn = "".join(f'<div class="kv-picture" style="margin: 8px 0">{each}</div>' for each in pictures)
    grid = "display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 8px 16px"
    cards = f'<div style="{grid}">{"".join(map(_card, facts))}</div>'
    return _sheet(top + _warned(warnings) + drawn + cards + _noted(notes), stale)


def side_by_side(pictures, below="", warnings=(), notes=(), stale=""):
    """Pictures next to each other where the page is wide enough, and HTML below them -> HTML string."""
    drawn = "".join(f'<div class="kv-picture">{picture}</div>' for picture in pictures)
    drawn = f'<div style="display: flex; flex-wrap: wrap; gap: 8px 20px; align-items: start">{drawn}</div>'
    below = f'<div style="overflow-x: auto">{below}</div>'
    return _sheet(_warned(warnings) + drawn + below + _noted(notes), stale, width=920)


def refusal(words):
    """What could not be computed, in words, as HTML. A long list of what is known is folded behind its count:
    what else is said is to be seen too."""
    said, names = without_list(words)
    known = f"<details><summary>{len(names)} are known</summary>{html.escape(', '.join(names))}</details>"
    return (
        f'<div class="kv-error" role="alert" style="{_BOX}; border-color: {VERMILION}; '
        f'overflow-wrap: anywhere"><b>Not computed:</b> {html.escape(said)}{known if names else ""}'
        f'<div style="color: {GREY}">Below is the last answer that could be given.</div></div>'
    )


def without_list(words, most=12):
    """'... Known: a, b, ..., z. And more.' -> ('... And more.', names), where there are more than so many."""
    found = re.search(r"[ ;]*\b[Kk]nown: (.*?)(\. (?=[A-Z])|$)", words, re.DOTALL)
    names = found.group(1).split(", ") if found else []
    if len(names) <= most:
        return words, []
    before, after = words[: found.start()], words[found.end() :]
    return f"{before.removesuffix('.')}. {after}".strip(), names


_BOX = "border-left: 4px solid; background: #FAFAFA; padding: 5px 10px; margin: 6px 0"


_STYLE = (  # tables: JupyterLab leaves tables in widgets as bare as a browser does
    "<style>.kv-sheet table { border-collapse: collapse; margin: 8px 0 }"
    ".kv-sheet th, .kv-sheet td { padding: 3px 9px; white-space: nowrap }"
    f".kv-sheet tbody tr {{ border-top: 1px solid {PALE} }}"
    ".kv-sheet .kv-three::before { content: ',' }"
    ".kv-sheet .kv-picture { max-width: 100%; overflow-x: auto }"
    ".kv-sheet .kv-picture svg { display: block }</style>"
)


def _sheet(content, stale, width=800):
    kind, faded = ("kv-stale", "opacity: 0.45") if stale else ("kv-fresh", "")
    refused = refusal(stale) if stale else ""
    return (
        f'{_STYLE}<div class="kv-sheet" style="background: white; color: {INK}; '
        f"font: 13px/1.4 sans-serif; padding: 8px 10px; max-width: {width}px; "
        f'display: grid; grid-template-columns: minmax(0, 1fr)">{refused}'
        f'<div class="{kind}" style="{faded}">{content}</div></div>'
    )


def _warned(warnings):
    return "".join(
        f'<div class="kv-warning" role="status" style="{_BOX}; border-color: {ORANGE}">'
        f"{html.escape(each)}</div>"
        for each in warnings
    )


def _noted(notes):
    return "".join(
        f'<div class="kv-note" style="margin-top: 6px; color: {GREY}">{html.escape(each)}</div>'
        for each in notes
    )


def _card(fact):
    return (
        f'<div class="kv-fact-{fact.key}" style="'
        f'border-top: 2px solid {PALE}; padding: 5px 2px 2px">'
        f'<div style="color: {GREY}; font-size: 12px">{html.escape(fact.name)}</div>'
        f'<div class="kv-value" style="font-size: 17px; font-weight: 600; line-height: 1.35">'
        f'{html.escape(fact.value)}</div><div style="font-size: 12px">{html.escape(fact.more)}</div></div>'
    )
