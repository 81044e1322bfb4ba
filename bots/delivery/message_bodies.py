"""The content of the messages of batches, and which batches are corrections of earlier messages.

A body is rendered once per language and look, however many people get it.

Edits become corrections (XEP-0308). A batch of edits replaces the newest message that told one of them, if it is among
the person's last 20, all it told is still kept, and the person left none of its channels: the whole earlier text is
sent again, with the entries as they are now. Edits of what other messages told stand in the same text. If no message
can be corrected, the batch stays a short message "Edited: …"; that also ends a message that was corrected too often.
Clients that do not support corrections show one as a new message, so it has to make sense alone.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from cachetools import FIFOCache, LRUCache

from bots.delivery.notification_text import ArticleKey, SavedSearchMatch, link_preview, render_notification
from bots.i18n.translator import Voice, voice
from bots.replies.entry_templates import Template
from bots.xmpp import stanzas
from service.feeds.entries.version_parts import article_hashes, select_part
from service.model import Change, Channel, ChannelId, Delta, UserId
from service.store import Store
from service.store.channels.channels import Channels
from service.store.delivery.outbox import Batch, MessageId, OutboxItem, SentMessage
from service.users.preferences import NO_PREFERENCES, PreferencesByNumber, effective_template

KEPT: Final = 512
"""Bodies remembered; each is at most some 4 kB."""
MOST_VERSIONS: Final = 100
"""Versions that are read for one item: of a longer pause the latest are told, the others counted."""

_Items = tuple[OutboxItem, ...]
"""Items without the time they were queued, which differs from person to person."""


class Versions(msgspec.Struct, frozen=True):
    """The deltas of an item, oldest first; ``gone`` of its versions are not kept any more, or are too many."""

    deltas: tuple[Delta, ...]
    gone: int


async def versions(channels: Channels, item: OutboxItem) -> Versions:
    """Return what an item stands for: a version, or after a pause all that were withheld. Raises StoreUnavailable."""
    after = item.version - 1 if item.after is None else item.after
    first = max(after + 1, item.version - MOST_VERSIONS + 1)
    found = await channels.deltas(item.channel, first, item.version)
    return Versions(tuple(delta for delta in found if not delta.initial), item.version - after - len(found))


def shares(item: OutboxItem, deltas: Sequence[Delta]) -> list[Delta]:
    """Return the part of each delta that an item tells: positions are counted through all of them."""
    found, first = [], 0
    for delta in deltas:
        own = [position - first for position in item.left_out or ()]
        found.append(select_part(delta, edits=item.edits, left_out=own))
        first += len(delta.changes)
    return found


class Look(msgspec.Struct, frozen=True):
    """How a person wants one channel: with a title of their own, unless "", and entries written by a template."""

    title: str = ""
    template: Template | None = None


Looks = Mapping[ChannelId, Look]
"""Of channels that do not look as usual."""


class Body(msgspec.Struct, frozen=True):
    """What a message says, as XML ("" if there is nothing to tell any more).

    ``detected_s`` is when its deltas were detected (Unix s), ``traces`` what they are called in logs.
    """

    xml: str
    detected_s: tuple[float, ...]
    traces: tuple[str, ...]


class Bodies:
    """The body of each batch, from the channels' logs. Every method may raise StoreUnavailable."""

    def __init__(self, store: Store) -> None:
        """Read from ``store``."""
        self._store = store
        self._known: FIFOCache[tuple[str, frozenset[tuple[ChannelId, Look]], _Items], Body] = FIFOCache(KEPT)

    async def looks(self, uid: UserId, batches: Sequence[Batch], preferences: PreferencesByNumber, zone: str) -> Looks:
        """Return how a person wants the channels of batches to look."""
        if not any(each.title or each.template for each in preferences.values()):
            return {}
        cids = list(dict.fromkeys(item.channel for batch in batches for item in batch.items))
        numbers = await self._store.subscriptions.numbers([(uid, cid) for cid in cids])
        looks = {}
        for cid, number in zip(cids, numbers, strict=True):
            if number is not None:
                text = effective_template(preferences, number)
                looks[cid] = Look(preferences.get(number, NO_PREFERENCES).title, Template(text, zone) if text else None)
        return {cid: look for cid, look in looks.items() if look != Look()}

    async def of(self, batch: Batch, language: str, looks: Looks) -> Body:
        """Return the batch's body in the language of a tag, with these looks."""
        items = tuple(msgspec.structs.replace(item, queued_s=0.0) for item in batch.items)
        speaker = voice(language)
        looks = {item.channel: looks[item.channel] for item in items if item.channel in looks} if looks else looks
        key = (speaker.language, frozenset(looks.items()), items)
        body = self._known.get(key)
        if body is None:
            body = self._known[key] = await self._rendered(items, speaker, looks)
        return body

    async def _rendered(self, items: _Items, speaker: Voice, looks: Looks) -> Body:
        found = await self._store.channels.many(list(dict.fromkeys(item.channel for item in items)))
        channels = {channel.id: _titled(channel, looks) for channel in found if channel is not None}
        templates = {cid: look.template for cid, look in looks.items() if look.template is not None}
        kept = [(item, await versions(self._store.channels, item)) for item in items]
        gone: Counter[ChannelId] = Counter()
        for item, own in kept:
            if own.gone:
                gone[item.channel] += own.gone
        told = [delta for item, own in kept for delta in shares(item, own.deltas)]
        left_out: list[tuple[ChannelId, Change]] = []
        met: defaultdict[ArticleKey, list[SavedSearchMatch]] = defaultdict(list)
        for item, own in kept:
            changes = [change for delta in own.deltas for change in delta.changes]
            if changes:
                left_out += [(item.channel, changes[position]) for position in item.left_out or ()]
                for watch in item.met or ():
                    for position in watch.positions:
                        met[item.channel, changes[position].entry.key].append((watch.number, watch.words))
        also_in = {
            article: [channels[cid] for cid in others if cid in channels]
            for article, others in find_duplicates(told, left_out).items()
        }
        text = render_notification(list(channels.values()), told, gone, also_in, speaker, met=met, templates=templates)
        xml = stanzas.payload(text) + (link_preview(text, told, channels) if not gone else "") if text else ""
        return Body(xml, tuple(delta.detected_s for delta in told), tuple(delta.trace_id for delta in told))


def find_duplicates(
    told: Sequence[Delta], left_out: Sequence[tuple[ChannelId, Change]]
) -> dict[ArticleKey, list[ChannelId]]:
    """Return, for each article that is told, the channels of which the same one is left out."""
    tellers = {
        mark: (delta.channel, change.entry.key)
        for delta in told
        for change in delta.changes
        for mark in article_hashes(change.entry)
    }
    found: defaultdict[ArticleKey, list[ChannelId]] = defaultdict(list)
    for cid, change in left_out:
        for key in dict.fromkeys(tellers[mark] for mark in article_hashes(change.entry) if mark in tellers):
            if cid not in found[key] and cid != key[0]:
                found[key].append(cid)
    return dict(found)


def _titled(channel: Channel, looks: Looks) -> Channel:
    own = looks[channel.id].title if channel.id in looks else ""
    return msgspec.structs.replace(channel, title=own) if own else channel


MOST_ITEMS: Final = 40
"""Of a message with all its corrections."""
ITEMS_KEPT: Final = 512
"""Items of which we remember the entries."""

_Entries = frozenset[tuple[ChannelId, str]]


class Corrections:
    """Finds the earlier messages, and has the store tie the batches to them."""

    def __init__(self, store: Store) -> None:
        """Look in this store."""
        self._store = store
        self._known: LRUCache[OutboxItem, _Entries] = LRUCache(ITEMS_KEPT)

    async def made(self, claimed: Mapping[UserId, Batch]) -> dict[UserId, Batch]:
        """Return freshly claimed batches, those of edits as corrections where that can be. Raises StoreUnavailable."""
        edits = {uid: batch for uid, batch in claimed.items() if batch.items[0].edits}
        earlier = await self._store.outbox.told(list(edits))
        found: list[tuple[UserId, MessageId, MessageId]] = []
        for (uid, batch), messages in zip(edits.items(), earlier, strict=True):
            edited = await self._told_by(batch.items) or frozenset()
            if (message := await self._newest(messages, edited)) is not None:
                found.append((uid, batch.message_id, message.message_id))
        return {**claimed, **await self._store.outbox.correct(found, MOST_ITEMS)}

    async def _newest(self, messages: Sequence[SentMessage], edited: _Entries) -> SentMessage | None:
        channels = {cid for cid, _ in edited}
        for message in messages:
            if not channels.isdisjoint(item.channel for item in message.items):
                told = await self._told_by(message.items)
                if told is not None and not told.isdisjoint(edited):
                    return message
        return None

    async def _told_by(self, items: Sequence[OutboxItem]) -> _Entries | None:
        """Return the entries that these items tell of; None if one of them is not kept any more."""
        found: set[tuple[ChannelId, str]] = set()
        for each in items:
            item = msgspec.structs.replace(each, queued_s=0.0)  # it differs from person to person
            entries = self._known.get(item)
            if entries is None:
                kept = await versions(self._store.channels, item)
                if kept.gone:
                    return None
                told = [change for delta in shares(item, kept.deltas) for change in delta.changes]
                entries = self._known[item] = frozenset((item.channel, change.entry.key) for change in told)
            found |= entries
        return frozenset(found)
