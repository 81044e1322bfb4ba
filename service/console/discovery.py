"""The directory as admins see it: a search with how it was answered, and the matrices that have grown."""

import msgspec

from service.discovery.grammar import parse_query
from service.discovery.pairs import About
from service.model import ChannelId, Entry
from service.settings import Settings
from service.store import Store


class SearchItem(msgspec.Struct, frozen=True):
    """A channel that was found, or an entry of it."""

    channel: ChannelId
    url: str
    title: str
    entry: Entry | None


class SearchResult(msgspec.Struct, frozen=True):
    """What people find by a query, and how the matrices answer it.

    ``pairs`` is the query as it was understood; ``asked`` the pair whose matrix was asked, in ``cells`` of its
    ``partitions`` by ``replicas``; ``complete``: the directory has no others.
    """

    items: tuple[SearchItem, ...]
    about: About
    pairs: tuple[str, ...]
    asked: str
    partitions: int
    replicas: int
    cells: int
    complete: bool
    took_s: float


class Matrix(msgspec.Struct, frozen=True):
    """A matrix with several cells; ``names`` in each partition's first replica."""

    about: About
    pair: str
    partitions: int
    replicas: int
    names: tuple[int, ...]


class Matrices(msgspec.Struct, frozen=True):
    """All matrices with several cells, the largest first. Those of one cell, which are most, are not listed."""

    items: tuple[Matrix, ...]


async def search(store: Store, settings: Settings, text: str) -> SearchResult:
    """Search as people do in chat. Raises :class:`service.errors.BadQuery`."""
    query = parse_query(text)
    told = await store.search.explained(query)
    found = await store.search.find(query, settings.public_from_subscribers)
    return SearchResult(
        items=tuple(SearchItem(each.channel.id, each.channel.url, each.channel.title, each.entry) for each in found),
        about=query.about,
        pairs=query.pairs,
        asked=told.asked,
        partitions=told.size.partitions,
        replicas=told.size.replicas,
        cells=told.cells,
        complete=told.complete,
        took_s=told.took_s,
    )


async def matrices(store: Store) -> Matrices:
    """Return what has grown, with the names in each partition."""
    kinds: tuple[About, About] = ("channel", "entry")
    found = []
    for about in kinds:
        directory = store.names if about == "channel" else store.entries
        for pair, size in (await directory.matrices()).items():
            cells = await directory.cells_of(pair)
            names = tuple(answer.load.names for place, answer in cells if place.replica == 0)
            found.append(Matrix(about, pair, size.partitions, size.replicas, names))
    found.sort(key=lambda each: (-each.partitions * each.replicas, each.about, each.pair))
    return Matrices(tuple(found))
