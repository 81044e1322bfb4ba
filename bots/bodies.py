"""What batches say, rendered once however many people get the same."""

from collections import Counter, OrderedDict
from typing import Final

import msgspec

from bots import stanzas
from bots.notifications import notification
from service.model import ChannelId
from service.store.channels import Channels
from service.store.outbox import Batch

KEPT: Final = 512
"""Bodies remembered; each is at most some 4 kB."""

_Items = tuple[tuple[ChannelId, int], ...]


class Body(msgspec.Struct, frozen=True):
    """What a message says, as XML ("" if there is nothing to tell any more); when its deltas were detected (Unix s)."""

    xml: str
    detected_s: tuple[float, ...]


class Bodies:
    """The body of each batch, from the channels' logs."""

    def __init__(self, channels: Channels) -> None:
        """Read from these channels."""
        self._channels = channels
        self._known: OrderedDict[_Items, Body] = OrderedDict()

    async def of(self, batch: Batch) -> Body:
        """Return the batch's body. Raises StoreUnavailable."""
        items = tuple((item.channel, item.version) for item in batch.items)
        body = self._known.get(items)
        if body is None:
            body = self._known[items] = await self._rendered(items)
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        return body

    async def _rendered(self, items: _Items) -> Body:
        channels = await self._channels.many(list(dict.fromkeys(cid for cid, _ in items)))
        found = [(cid, await self._channels.delta(cid, version)) for cid, version in items]
        deltas = [delta for _, delta in found if delta is not None]
        gone = Counter(cid for cid, delta in found if delta is None)
        text = notification([channel for channel in channels if channel is not None], deltas, gone)
        return Body(stanzas.payload(text) if text else "", tuple(delta.detected_s for delta in deltas))
