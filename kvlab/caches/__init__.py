"""One file a storage idea. All answer ``attend``; the model never knows which one it talks to."""

from kvlab.caches.base import Cache, CacheOverflow
from kvlab.caches.growing import GrowingCache
from kvlab.caches.host import HostTier
from kvlab.caches.maps import AttentionMaps
from kvlab.caches.none import NoCache
from kvlab.caches.paged import PagedCache, PagedStep, Pages
from kvlab.caches.static import StaticCache

__all__ = [
    "AttentionMaps",
    "Cache",
    "CacheOverflow",
    "GrowingCache",
    "HostTier",
    "NoCache",
    "PagedCache",
    "PagedStep",
    "Pages",
    "StaticCache",
]
