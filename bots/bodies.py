"""What batches say, rendered once in each language however many people get the same."""

from collections import Counter, OrderedDict
from typing import Final

import msgspec

from bots import stanzas
from bots.elsewhere import told_elsewhere
from bots.notifications import ArticleKey, MetBy, notification
from bots.voice import Voice, voice
from service.feeds.parts import share
from service.model import ChannelId, Delta
from service.store.channels import Channels
from service.store.outbox import Batch, MetWatch

KEPT: Final = 512
"""Bodies remembered; each is at most some 4 kB."""


class _Item(msgspec.Struct, frozen=True):
    """An outbox item without the time it was queued, which differs from person to person."""

    channel: ChannelId
    version: int
    edits: bool
    left_out: tuple[int, ...]
    met: tuple[MetWatch, ...]


_Items = tuple[_Item, ...]


class Body(msgspec.Struct, frozen=True):
    """What a message says, as XML ("" if there is nothing to tell any more); when its deltas were detected (Unix s)."""

    xml: str
    detected_s: tuple[float, ...]


class Bodies:
    """The body of each batch, from the channels' logs."""

    def __init__(self, channels: Channels) -> None:
        """Read from these channels."""
        self._channels = channels
        self._known: OrderedDict[tuple[str, _Items], Body] = OrderedDict()

    async def of(self, batch: Batch, language: str) -> Body:
        """Return the batch's body in the language of a tag. Raises StoreUnavailable."""
        items = tuple(_Item(item.channel, item.version, item.edits, item.left_out, item.met) for item in batch.items)
        speaker = voice(language)
        key = (speaker.language, items)
        body = self._known.get(key)
        if body is None:
            body = self._known[key] = await self._rendered(items, speaker)
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        return body

    async def _rendered(self, items: _Items, speaker: Voice) -> Body:
        found = await self._channels.many(list(dict.fromkeys(item.channel for item in items)))
        channels = {channel.id: channel for channel in found if channel is not None}
        deltas = [(item, await self._channels.delta(item.channel, item.version)) for item in items]
        gone = Counter(item.channel for item, delta in deltas if delta is None)
        present = [(item, delta) for item, delta in deltas if delta is not None]
        told = [share(delta, edits=item.edits, left_out=item.left_out) for item, delta in present]
        also_in = {
            article: [channels[cid] for cid in others if cid in channels]
            for article, others in told_elsewhere(told, _left_out(present)).items()
        }
        text = notification(list(channels.values()), told, gone, also_in, speaker, met=_met(present))
        return Body(stanzas.payload(text) if text else "", tuple(delta.detected_s for delta in told))


def _left_out(present: list[tuple[_Item, Delta]]) -> list[Delta]:
    return [
        msgspec.structs.replace(delta, changes=tuple(delta.changes[position] for position in item.left_out))
        for item, delta in present
        if item.left_out
    ]


def _met(present: list[tuple[_Item, Delta]]) -> dict[ArticleKey, list[MetBy]]:
    """Return the standing queries that each entry has met."""
    found: dict[ArticleKey, list[MetBy]] = {}
    for item, delta in present:
        for watch in item.met:
            for position in watch.positions:
                key = (item.channel, delta.changes[position].entry.key)
                found.setdefault(key, []).append((watch.number, watch.words))
    return found
