"""The memory widgets without a browser: set their fields, read what their answer says."""

import re
from html import unescape


def field(widget, name):
    """The widget that has this class, in a tree of widgets."""
    if name in widget._dom_classes:
        return widget
    inside = (field(child, name) for child in getattr(widget, "children", ()))
    return next((found for found in inside if found is not None), None)


def live(page, **values):
    """The live widget with fields set (kv_page=16 sets kv-page) -> (widget, what its answer says)."""
    widget = page.widget()
    for name, value in values.items():
        field(widget, name.replace("_", "-")).value = value
    return widget, field(widget, "kv-answer").value


def total(page):
    """The text of the element kv-bytes-total, as a browser gives it, and what follows it."""
    inside = re.search(r'<b class="kv-bytes-total"[^>]*>(.*?)</b>', page).group(1)
    return re.sub("<[^>]*>", "", inside)


def words(page):
    return unescape(re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", page)))
