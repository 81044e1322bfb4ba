"""What is remembered of channels' contents: the latest read or written here, within bounds; else what is located."""

from collections import OrderedDict

import msgspec

from service.location.contents import Digest
from service.model import Channel, ChannelId, Delta
from workers.peers.contents import Contents, Located

MOST_BYTES = 32 * 1024 * 1024


class Memories:
    """Memories of contents (opaque here), by channel and version; a channel that was made again is another one.

    They may run ahead of the version's while a content changes without saying anything new. To lose
    such a one costs nothing: the version's, which is compared with instead, knows all that was told.
    """

    def __init__(self, contents: Contents, most_bytes: int = MOST_BYTES) -> None:
        self._contents = contents
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[ChannelId, tuple[Channel, bytes]] = OrderedDict()

    async def of(self, channel: Channel, digest: Digest) -> tuple[bytes, Located | None]:
        """Return what is remembered of this version of a channel, whose content has this digest.

        And how it was located, if it had to be: then it may be of a later version.
        Raises :class:`service.errors.StoreUnavailable`.
        """
        kept, memory = self._kept.get(channel.id, (None, b""))
        if kept is not None and (kept.created_s, kept.version) == (channel.created_s, channel.version):
            self._kept.move_to_end(channel.id)
            return memory, None
        located = await self._contents.locate(channel.id, channel.version, digest)
        memory = located.content.memory
        self.keep(msgspec.structs.replace(channel, version=located.version), memory)
        return memory, located

    def keep(self, channel: Channel, memory: bytes) -> None:
        """Compare this version of a channel with this from now on; what was not used for longest is forgotten."""
        self.drop(channel.id)
        self._kept[channel.id] = channel, memory
        self._bytes += len(memory)
        while self._bytes > self._most_bytes:
            self.drop(next(iter(self._kept)))

    def versioned(self, channel: Channel, delta: Delta, memory: bytes, before: Digest, after: Digest) -> None:
        """Compare this version of a channel, which a delta found here has made, with this from now on."""
        self.keep(channel, memory)
        self._contents.versioned(delta, memory, before, after)

    def drop(self, cid: ChannelId) -> None:
        """Forget what is remembered of a channel here."""
        dropped = self._kept.pop(cid, None)
        self._bytes -= len(dropped[1]) if dropped else 0
