"""What entries of public channels are to those who are not subscribed: names in the directory, hits of `watch`.

Nothing of a channel that is not public gets here: its entries are in no directory and meet no standing query.
"""

import time

import structlog

from service.discovery.grammar import written
from service.discovery.names import Traits, entry_pairs
from service.discovery.results import entry_name
from service.discovery.standing import Subject, Watch, WatchId
from service.errors import CellsLost
from service.feeds.parts import parts
from service.feeds.text import one_line
from service.feeds.urls import host_of, without_selector
from service.model import Channel, Delta, Entry
from service.net.sites import site_of
from service.search import Searcher
from service.store import Store
from service.store.directory import Name
from service.store.outbox import Hit, MetWatch
from service.store.standing import FreshMatcher

ENTRIES_KEPT_S = 3 * 86_400.0
MOST_ENTRIES = 100
"""Of one version that are named and matched; a channel that publishes more at once is not told entry by entry."""
_WORDS_CHARS = 120

log = structlog.get_logger(__name__)


class Hits:
    """A worker's standing queries, and its way into the directory of entries."""

    def __init__(self, store: Store, least_subscribers: int) -> None:
        """``least_subscribers`` make a channel public."""
        self._store = store
        self._search = Searcher(store, least_subscribers)
        self._matcher = FreshMatcher(store.standing)

    async def take_in(self, delta: Delta) -> None:
        """Name a version's new entries, and queue them for those who watch for them; may be repeated.

        Raises :class:`service.errors.StoreUnavailable`.
        """
        new = [
            (position, change.entry)
            for position, change in enumerate(delta.changes)
            if change.kind == "addition" and not change.line
        ][:MOST_ENTRIES]
        if not new or delta.notice is not None:
            return
        public = await self._search.public([delta.channel])
        if delta.channel in public:
            await self._take_in(delta, public[delta.channel], new)

    async def _take_in(self, delta: Delta, channel: Channel, new: list[tuple[int, Entry]]) -> None:
        domain = site_of(host_of(without_selector(channel.url)))
        named = [entry_pairs(entry, channel, Traits(channel.language), domain) for _, entry in new]
        await self._name(delta, [position for position, _ in new], named)
        subjects = [Subject(entry, pairs) for (_, entry), pairs in zip(new, named, strict=True)]
        met: dict[WatchId, list[int]] = {}
        for (position, _), watches in zip(new, await self._matcher.match(subjects), strict=True):
            for watch in watches:
                met.setdefault(watch, []).append(position)
        held = await self._store.standing.held(sorted(met))
        hits = [
            Hit(uid, tuple(MetWatch(watch.number, _words(watch), tuple(met[watch.id])) for watch in own))
            for uid, own in held.items()
        ]
        if hits:
            await self._store.outbox.enqueue_hits(
                delta.channel,
                delta.version,
                time.time(),
                hits,
                news=parts(delta).news or (),
                changes=len(delta.changes),
            )

    async def _name(self, delta: Delta, positions: list[int], named: list[tuple[str, ...]]) -> None:
        names = [
            Name(entry_name(delta.channel, delta.version, position), 1, frozenset(pairs))
            for position, pairs in zip(positions, named, strict=True)
        ]
        try:
            await self._store.entries.register(names, ENTRIES_KEPT_S, changed=False)
        except CellsLost as error:
            log.warning("entries are not in the directory", channel=delta.channel[:8], why=str(error))


def _words(watch: Watch) -> str:
    return one_line(written(watch.standing), _WORDS_CHARS)
