"""The inboxes of workers, through which other processes send them messages.

Each inbox is a stream of bounded length, in its own slot.
"""

import msgspec

from service.model import NodeId
from service.store.client import keys
from service.store.client.node_connections import Command
from service.store.client.redis_client import RedisRepository
from service.store.client.streams import append_command, wait_for_entries

_MESSAGES_PER_READ = 500


_INBOX_TTL_S = 3600


class InboxMessage(msgspec.Struct, frozen=True):
    """A message to a worker. Its ``kind`` is one of five.

    - ``peer``: a message between nodes, of Corona's protocol.
    - ``ask``: a request of a bot or the console.
    - ``push``: a hub has pushed a document for a channel. The payload is the channel's id. No reply is expected.
    - ``share``: a message between nodes about lists of channels that they keep for searches (lookup directories).
    - ``fanout``: a request to help to queue a version for a channel's subscribers. The payload is the channel's id.
    """

    kind: str
    sender: str
    payload: bytes


class NodeInboxes(RedisRepository):
    """Inboxes of workers. A message may be lost; then its sender, following its protocol, sends it again."""

    async def send(self, messages: list[tuple[NodeId, InboxMessage]]) -> None:
        """Append each message to the inbox of its node, in order and in one round trip."""
        commands: list[Command] = []
        for to, message in messages:
            fields = ("k", message.kind, "f", message.sender, "m", message.payload)
            commands.append(append_command(keys.inbox(to), *fields))
        # Inboxes of nodes that are gone expire.
        commands += [("EXPIRE", keys.inbox(to), _INBOX_TTL_S) for to in dict.fromkeys(to for to, _ in messages)]
        await self._redis.call_many(commands)

    async def read(self, node: NodeId, after: str) -> tuple[list[InboxMessage], str]:
        """Wait for messages to a node; return them and the id of the last one.

        ``after`` is the id of the last message that was read before; "0" stands for the beginning. If the reader fails
        before it has processed a message, the message is lost.
        """
        found = await wait_for_entries(self._redis, keys.inbox(node), after, _MESSAGES_PER_READ)
        messages = [InboxMessage(fields[b"k"].decode(), fields[b"f"].decode(), fields[b"m"]) for _, fields in found]
        return messages, found[-1][0] if found else after

    async def trim(self, node: NodeId, entry_id: str) -> None:
        """Delete the messages in the node's inbox before the entry ``entry_id``."""
        await self._redis.call("XTRIM", keys.inbox(node), "MINID", entry_id)

    async def delete(self, nodes: tuple[NodeId, ...]) -> None:
        """Delete the inboxes of nodes that have left the ring."""
        if nodes:
            await self._redis.call_many([("UNLINK", keys.inbox(node)) for node in nodes])
