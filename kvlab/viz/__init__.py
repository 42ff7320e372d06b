"""Pictures and tables: state in, a matplotlib figure or an HTML string out. No attention is computed here."""

from kvlab.viz import serving
from kvlab.viz.anatomy import cache_anatomy
from kvlab.viz.attention_map import attention_figure, attention_svg, numbered_maps
from kvlab.viz.blocks import filmstrip, memory_lanes
from kvlab.viz.course import course_map
from kvlab.viz.decoder import decoder_diagram
from kvlab.viz.heads import head_sharing
from kvlab.viz.latent import latent_anatomy
from kvlab.viz.memory.strips import layer_strips
from kvlab.viz.show import Picture, Table, bill, style
from kvlab.viz.steps import step_grid, step_grids, timeline

__all__ = [
    "Picture",
    "Table",
    "attention_figure",
    "attention_svg",
    "bill",
    "cache_anatomy",
    "course_map",
    "decoder_diagram",
    "filmstrip",
    "head_sharing",
    "latent_anatomy",
    "layer_strips",
    "memory_lanes",
    "numbered_maps",
    "serving",
    "step_grid",
    "step_grids",
    "style",
    "timeline",
]
