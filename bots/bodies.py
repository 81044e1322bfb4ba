"""What batches say, rendered once however many people get the same."""

from collections import OrderedDict
from typing import Final

from bots import stanzas
from bots.notifications import notification
from service.model import ChannelId
from service.store.channels import Channels
from service.store.outbox import Batch

KEPT: Final = 512
"""Bodies remembered; each is at most some 4 kB."""

_Items = tuple[tuple[ChannelId, int], ...]


class Bodies:
    """The ``<body>`` of each batch, from the channels' logs."""

    def __init__(self, channels: Channels) -> None:
        """Read from these channels."""
        self._channels = channels
        self._known: OrderedDict[_Items, str] = OrderedDict()

    async def of(self, batch: Batch) -> str:
        """Return the batch's body as XML; "" if there is nothing to tell (any more). Raises StoreUnavailable."""
        items = tuple((item.channel, item.version) for item in batch.items)
        body = self._known.get(items)
        if body is None:
            body = self._known[items] = await self._rendered(items)
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        return body

    async def _rendered(self, items: _Items) -> str:
        channels = await self._channels.many(list(dict.fromkeys(cid for cid, _ in items)))
        deltas = [await self._channels.delta(cid, version) for cid, version in items]
        text = notification([c for c in channels if c is not None], [d for d in deltas if d is not None])
        return stanzas.payload(text) if text else ""
