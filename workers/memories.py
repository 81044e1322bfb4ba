"""What is remembered of channels' contents: the latest read or written here, within bounds; else the store's."""

from collections import OrderedDict

import msgspec

from service.model import Channel, ChannelId
from service.store.channels import Channels

MOST_BYTES = 32 * 1024 * 1024


class Memories:
    """Memories of contents (opaque here), by channel and version; a channel that was made again is another one.

    They may run ahead of the store's while a content changes without saying anything new. To lose
    such a one costs nothing: the store's, which is compared with instead, knows all that was told.
    """

    def __init__(self, channels: Channels, most_bytes: int = MOST_BYTES) -> None:
        self._channels = channels
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[ChannelId, tuple[Channel, bytes]] = OrderedDict()

    async def of(self, channel: Channel) -> tuple[int, bytes]:
        """Return what is remembered of this version of a channel, or of a later one, with its number.

        Raises :class:`service.errors.StoreUnavailable`.
        """
        kept, memory = self._kept.get(channel.id, (None, b""))
        if kept is not None and (kept.created_s, kept.version) == (channel.created_s, channel.version):
            self._kept.move_to_end(channel.id)
            return channel.version, memory
        version, memory = await self._channels.memory(channel.id)
        self.keep(msgspec.structs.replace(channel, version=version), memory)
        return version, memory

    def keep(self, channel: Channel, memory: bytes) -> None:
        """Compare this version of a channel with this from now on; what was not used for longest is forgotten."""
        self.drop(channel.id)
        self._kept[channel.id] = channel, memory
        self._bytes += len(memory)
        while self._bytes > self._most_bytes:
            self.drop(next(iter(self._kept)))

    def drop(self, cid: ChannelId) -> None:
        """Forget what is remembered of a channel here."""
        dropped = self._kept.pop(cid, None)
        self._bytes -= len(dropped[1]) if dropped else 0
