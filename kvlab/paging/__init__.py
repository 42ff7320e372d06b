"""Blocks of cache slots: who owns which, in plain Python. The numbers themselves lie in ``caches.paged``."""

from kvlab.paging.hashes import BlockHashes
from kvlab.paging.log import Log, Moment
from kvlab.paging.pool import BlockPool, OutOfBlocks
from kvlab.paging.prefix import Prefix
from kvlab.paging.prefix_table import PrefixTable
from kvlab.paging.radix import RadixTree
from kvlab.paging.replay import Replay
from kvlab.paging.story import Story
from kvlab.paging.table import BlockTable

__all__ = [
    "BlockHashes",
    "BlockPool",
    "BlockTable",
    "Log",
    "Moment",
    "OutOfBlocks",
    "Prefix",
    "PrefixTable",
    "RadixTree",
    "Replay",
    "Story",
]
