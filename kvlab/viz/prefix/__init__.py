"""Pictures of what a prefix cache has, and of how much it finds.

They take the moments of a story, or numbers; what is found, stored and evicted is decided elsewhere.
"""

from kvlab.viz.prefix.chains import chains_sheet, hash_chains
from kvlab.viz.prefix.rates import rates_sheet
from kvlab.viz.prefix.sheets import film, stops, tree_film, tree_sheet

__all__ = ["chains_sheet", "film", "hash_chains", "rates_sheet", "stops", "tree_film", "tree_sheet"]
