"""Pictures and tables: state in, a matplotlib figure or an HTML string out. No attention is computed here."""

from kvlab.viz.course import course_map
from kvlab.viz.show import Picture, Table, bill, style
from kvlab.viz.steps import step_grid, timeline

__all__ = ["Picture", "Table", "bill", "course_map", "step_grid", "style", "timeline"]
