"""Registration of public channels' entries in the search directory.

An entry is registered when it is published, and the registration expires three days later. If the entry is edited, the
attribute-value pairs by which searches find it are replaced. On the entry's second day, the worker that owns the
channel registers it once more from the channel's log (:meth:`EntryRegistrar.check`). This restores a registration that
was prevented by a crash or lost by Redis.

Every method can be repeated after a crash: registrations are idempotent, and the table that decides which entries are
shown (:mod:`service.store.channels.public_entries`) is changed last.

Cost: 100,000 channels that each publish 9 entries every three days cause 7 registrations per second.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from service.discovery.av_pairs import Pair
from service.discovery.content_names import DeclaredMetadata, entry_pairs, entry_text
from service.errors import CellsUnavailable
from service.feeds.canonical_urls import host_of, without_selector
from service.model import Channel, ChannelId, Delta, Entry
from service.net.sites_and_networks import site_of
from service.store import Store
from service.store.channels.public_entries import MAX_ENTRIES, WINDOW_S, EntryTable, ListedEntry
from service.store.directory.matrix_directory import ContentName

NAME_TTL_S = 12 * 3600.0
"""Time after which the registration of a channel's name expires, unless it is refreshed."""
DAY_S = 86_400.0
_VERSIONS_PER_READ = 64


def pairs_of(channel: Channel, entry: Entry) -> Mapping[Pair, int]:
    """Return the attribute-value pairs by which searches find an entry of a channel, with their weights."""
    domain = site_of(host_of(without_selector(channel.url)))
    return entry_pairs(entry, channel, DeclaredMetadata(channel.language), domain)


class EntryRegistrar:
    """Registers entries of public channels in the search directory, and withdraws them.

    The methods' parameter ``now_s`` is the current Unix time. Each method may raise
    :class:`service.errors.StoreUnavailable` or :class:`service.errors.CellsUnavailable`; the call can then be repeated.
    """

    def __init__(self, store: Store) -> None:
        """Create a registrar for the search directory in ``store``."""
        self._store = store
        self._public = store.public_entries

    async def publish(
        self, channel: Channel, delta: Delta, pairs: Mapping[int, Mapping[Pair, int]], now_s: float
    ) -> None:
        """Register the entries that a new version of a public channel adds, and update those that it edits.

        - ``delta``: the changes in the new version.
        - ``pairs``: maps the index of each new or edited entry in ``delta.changes`` to its attribute-value pairs, with
          their weights.

        An edited entry is updated only if it is still registered. Attribute-value pairs that no longer apply to its new
        text are withdrawn.
        """
        is_stored = False
        while not is_stored:
            (before,) = await self._public.tables([channel.id])
            former = before or EntryTable()
            after = former.after(delta, now_s)
            listed = [entry for entry in after.entries if entry.version == delta.version]
            texts = {entry: delta.changes[entry.position].entry for entry in listed}
            present = {entry.key: pairs[entry.position] for entry in listed}
            edited = [entry for entry in former.entries if entry.key in present and entry.version < delta.version]
            await self._register(channel, texts, {entry: present[entry.key] for entry in listed}, now_s)
            for entry, text in (await self._public.texts(channel.id, edited)).items():
                await self._withdraw(channel, entry, pairs_of(channel, text.entry).keys() - present[entry.key], now_s)
            is_stored = after == before or await self._public.replace(channel.id, before, after)

    async def check(self, channel: Channel, before: EntryTable | None, now_s: float) -> bool:
        """Register recent entries of a public channel again. Call this once a day per channel.

        An entry's registration lasts three days and is repeated once, on the entry's second day. The entries are read
        from the channel's log. All entries of the last three days are registered if the channel has just become
        public, or if its table of entries was lost. This table lists the entries that searches can find.

        ``before`` is the table as the caller has read it, or None if there was none. A new table is stored in its
        place.

        Return False if the new table was not stored, because another process has changed the table in the meantime;
        otherwise True.
        """
        after = EntryTable(checked_s=int(now_s))
        deltas = await self._recent_deltas(channel, now_s)
        for delta in deltas:
            after = after.after(delta, now_s)
        by_version = {delta.version: delta.changes for delta in deltas}
        is_first = before is None or not before.checked_s
        texts = {
            entry: by_version[entry.version][entry.position].entry
            for entry in after.entries
            if is_first or (entry.expires_s - now_s) // DAY_S == 1
        }
        pairs = {entry: pairs_of(channel, text) for entry, text in texts.items()}
        await self._register(channel, texts, pairs, now_s)
        return await self._public.replace(channel.id, before, after)

    async def withdraw(self, channel: Channel, before: EntryTable, now_s: float) -> None:
        """Withdraw all entries of a channel that is no longer public, and delete the channel's table of entries.

        ``before`` is the current table. It lists the entries that searches can find.
        """
        for entry, text in (await self._public.texts(channel.id, before.entries)).items():
            await self._withdraw(channel, entry, pairs_of(channel, text.entry), now_s)
        await self._public.replace(channel.id, before, None)

    async def _recent_deltas(self, channel: Channel, now_s: float) -> list[Delta]:
        """Return the channel's deltas of the last three days, oldest first.

        Older deltas are left out once the newer ones contain at least ``MAX_ENTRIES`` changes.
        """
        recent: list[Delta] = []
        version, count = channel.version, 0
        while version > 0 and count < MAX_ENTRIES:
            versions = range(max(1, version - _VERSIONS_PER_READ + 1), version + 1)
            deltas = await self._store.channels.deltas_of(channel.id, versions)
            new = [delta for delta in deltas if delta.detected_s > now_s - WINDOW_S]
            recent = new + recent
            if len(new) < len(versions):
                break
            version, count = versions[0] - 1, count + sum(len(delta.changes) for delta in new)
        return recent

    async def _register(
        self,
        channel: Channel,
        texts: Mapping[ListedEntry, Entry],
        pairs: Mapping[ListedEntry, Mapping[Pair, int]],
        now_s: float,
    ) -> None:
        """Register entries in the directory, and add their words to the vocabulary for correcting misspelt queries.

        - ``texts``: the content of each entry.
        - ``pairs``: the attribute-value pairs of each entry, with their weights.
        """
        by_end: dict[float, list[ContentName]] = {}
        words: dict[str, str] = {}
        for entry, text in texts.items():
            name = ContentName(entry.name(channel.id), pairs[entry])
            by_end.setdefault(entry.registered_until_s(now_s), []).append(name)
            words |= entry_text(text, channel.language).registered_words()
        directory = self._store.entry_directory
        await asyncio.gather(*(directory.register(names, until_s) for until_s, names in by_end.items()))
        await directory.vocabulary.add(words)

    async def _withdraw(self, channel: Channel, entry: ListedEntry, pairs: Iterable[Pair], now_s: float) -> None:
        until_s = entry.registered_until_s(now_s)
        await self._store.entry_directory.withdraw(entry.name(channel.id), pairs, until_s)


async def remove_channel(store: Store, cid: ChannelId) -> None:
    """Remove a channel and all subscriptions to it, and withdraw the channel and its entries from the search directory.

    The call is idempotent and has to be repeated after a crash. Raises :class:`service.errors.StoreUnavailable` if
    Redis does not respond.
    """
    with suppress(CellsUnavailable):  # what remains in the directory is not shown, and expires
        await _withdraw_all(store, cid)
    await store.remove_channel(cid)


async def _withdraw_all(store: Store, cid: ChannelId) -> None:
    channel = await store.channels.get(cid)
    if channel is None:
        return
    (table,), (pairs,) = await store.public_entries.tables([cid]), await store.channels.content_names([cid])
    if table is not None:
        await EntryRegistrar(store).withdraw(channel, table, time.time())
    if pairs:
        await store.channel_directory.withdraw(cid, pairs, time.time() + NAME_TTL_S)
