"""Step through all heads of a model with two sliders."""

import html

import ipywidgets as widgets

from kvlab.viz.attention_map import attention_svg
from kvlab.viz.show import Shown


class AttentionBrowser(Shown):
    """Sliders for layer and head over attention maps.

    maps: one [Hq, T, T] a layer, as in ``AttentionMaps.maps``; pieces: the T tokens' texts.
    """

    def __init__(self, maps, pieces, layer=0, head=0):
        self.maps, self.pieces, self.layer, self.head = maps, pieces, layer, head

    def text(self):
        return f"{len(self.maps)} layers of {len(self.maps[0])} heads: run the cell to move through them."

    def html(self):
        return f"<p><i>{html.escape(self.text())}</i></p>"

    def widget(self):
        layers = slider("layer", len(self.maps), self.layer)
        heads = slider("head", len(self.maps[0]), self.head)
        picture = widgets.HTML()
        picture.add_class("kv-attention-map")

        def draw(_=None):
            weights = self.maps[layers.value][heads.value].tolist()
            picture.value = attention_svg(weights, self.pieces, f"layer {layers.value}, head {heads.value}")

        for each in (layers, heads):
            each.observe(draw, names="value")
        draw()
        return widgets.VBox([widgets.HBox([layers, heads]), picture])


def slider(name, count, value):
    """A slider over 0 to count - 1, with a class by which a page, or a test, finds it."""
    made = widgets.IntSlider(value=value, min=0, max=count - 1, description=name, layout={"width": "300px"})
    made.add_class(f"kv-{name}")
    return made
