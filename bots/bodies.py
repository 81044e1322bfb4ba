"""What batches say: the content of each message, rendered once per language and look however many people get it."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from cachetools import FIFOCache

from bots import stanzas
from bots.notifications import ArticleKey, MetBy, link_preview, notification
from bots.templates import Template
from bots.voice import Voice, voice
from service.feeds.parts import marks, share
from service.model import Change, Channel, ChannelId, Delta, UserId
from service.preferences import NONE, ByNumber, template
from service.store import Store
from service.store.channels import Channels
from service.store.outbox import Batch, OutboxItem

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
        found.append(share(delta, edits=item.edits, left_out=own))
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

    async def looks(self, uid: UserId, batches: Sequence[Batch], preferences: ByNumber, zone: str) -> Looks:
        """Return how a person wants the channels of batches to look."""
        if not any(each.title or each.template for each in preferences.values()):
            return {}
        cids = list(dict.fromkeys(item.channel for batch in batches for item in batch.items))
        numbers = await self._store.subscriptions.numbers([(uid, cid) for cid in cids])
        looks = {}
        for cid, number in zip(cids, numbers, strict=True):
            if number is not None:
                text = template(preferences, number)
                looks[cid] = Look(preferences.get(number, NONE).title, Template(text, zone) if text else None)
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
        met: defaultdict[ArticleKey, list[MetBy]] = defaultdict(list)
        for item, own in kept:
            changes = [change for delta in own.deltas for change in delta.changes]
            if changes:
                left_out += [(item.channel, changes[position]) for position in item.left_out or ()]
                for watch in item.met or ():
                    for position in watch.positions:
                        met[item.channel, changes[position].entry.key].append((watch.number, watch.words))
        also_in = {
            article: [channels[cid] for cid in others if cid in channels]
            for article, others in also_told_by(told, left_out).items()
        }
        text = notification(list(channels.values()), told, gone, also_in, speaker, met=met, templates=templates)
        xml = stanzas.payload(text) + (link_preview(text, told, channels) if not gone else "") if text else ""
        return Body(xml, tuple(delta.detected_s for delta in told), tuple(delta.trace for delta in told))


def also_told_by(
    told: Sequence[Delta], left_out: Sequence[tuple[ChannelId, Change]]
) -> dict[ArticleKey, list[ChannelId]]:
    """Return, for each article that is told, the channels of which the same one is left out."""
    tellers = {
        mark: (delta.channel, change.entry.key)
        for delta in told
        for change in delta.changes
        for mark in marks(change.entry)
    }
    found: defaultdict[ArticleKey, list[ChannelId]] = defaultdict(list)
    for cid, change in left_out:
        for key in dict.fromkeys(tellers[mark] for mark in marks(change.entry) if mark in tellers):
            if cid not in found[key] and cid != key[0]:
                found[key].append(cid)
    return dict(found)


def _titled(channel: Channel, looks: Looks) -> Channel:
    own = looks[channel.id].title if channel.id in looks else ""
    return msgspec.structs.replace(channel, title=own) if own else channel
