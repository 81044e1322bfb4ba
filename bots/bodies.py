"""What batches say, rendered once in each language however many people get the same."""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from bots import stanzas
from bots.elsewhere import told_elsewhere
from bots.looks import USUAL, Look, Looks
from bots.notifications import ArticleKey, MetBy, link_preview, notification
from bots.versions import shares, versions
from bots.voice import Voice, voice
from service.model import Change, Channel, ChannelId, Delta
from service.store.channels import Channels
from service.store.outbox import Batch, OutboxItem

KEPT: Final = 512
"""Bodies remembered; each is at most some 4 kB."""


_Items = tuple[OutboxItem, ...]
"""Items without the time they were queued, which differs from person to person."""
_Present = list[tuple[OutboxItem, tuple[Delta, ...]]]


class Body(msgspec.Struct, frozen=True):
    """What a message says, as XML ("" if there is nothing to tell any more).

    ``detected_s`` is when its deltas were detected (Unix s), ``traces`` what they are called in logs.
    """

    xml: str
    detected_s: tuple[float, ...]
    traces: tuple[str, ...]


class Bodies:
    """The body of each batch, from the channels' logs."""

    def __init__(self, channels: Channels) -> None:
        """Read from these channels."""
        self._channels = channels
        self._known: OrderedDict[tuple[str, frozenset[tuple[ChannelId, Look]], _Items], Body] = OrderedDict()

    async def of(self, batch: Batch, language: str, looks: Looks = USUAL) -> Body:
        """Return the batch's body in the language of a tag, with these looks. Raises StoreUnavailable."""
        items = tuple(msgspec.structs.replace(item, queued_s=0.0) for item in batch.items)
        speaker = voice(language)
        looks = {item.channel: looks[item.channel] for item in items if item.channel in looks}
        key = (speaker.language, frozenset(looks.items()), items)
        body = self._known.get(key)
        if body is None:
            body = self._known[key] = await self._rendered(items, speaker, looks)
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        return body

    async def _rendered(self, items: _Items, speaker: Voice, looks: Looks) -> Body:
        found = await self._channels.many(list(dict.fromkeys(item.channel for item in items)))
        channels = {channel.id: _titled(channel, looks) for channel in found if channel is not None}
        templates = {cid: look.template for cid, look in looks.items() if look.template is not None}
        kept = [(item, await versions(self._channels, item)) for item in items]
        gone: Counter[ChannelId] = Counter()
        for item, own in kept:
            if own.gone:
                gone[item.channel] += own.gone
        present = [(item, own.deltas) for item, own in kept]
        told = [delta for item, deltas in present for delta in shares(item, deltas)]
        also_in = {
            article: [channels[cid] for cid in others if cid in channels]
            for article, others in told_elsewhere(told, _left_out(present)).items()
        }
        text = notification(
            list(channels.values()), told, gone, also_in, speaker, met=_met(present), templates=templates
        )
        xml = stanzas.payload(text) + (link_preview(text, told, channels) if not gone else "") if text else ""
        return Body(xml, tuple(delta.detected_s for delta in told), tuple(delta.trace for delta in told))


def _titled(channel: Channel, looks: Looks) -> Channel:
    title = looks[channel.id].title if channel.id in looks else ""
    return msgspec.structs.replace(channel, title=title) if title else channel


def _left_out(present: _Present) -> list[Delta]:
    return [
        msgspec.structs.replace(deltas[0], changes=tuple(changes[position] for position in item.left_out))
        for item, deltas in present
        if item.left_out and (changes := _changes(deltas))
    ]


def _met(present: _Present) -> dict[ArticleKey, list[MetBy]]:
    """Return the standing queries that each entry has met."""
    found: dict[ArticleKey, list[MetBy]] = {}
    for item, deltas in present:
        changes = _changes(deltas)
        for watch in item.met if changes else ():
            for position in watch.positions:
                key = (item.channel, changes[position].entry.key)
                found.setdefault(key, []).append((watch.number, watch.words))
    return found


def _changes(deltas: Sequence[Delta]) -> list[Change]:
    return [change for delta in deltas for change in delta.changes]
