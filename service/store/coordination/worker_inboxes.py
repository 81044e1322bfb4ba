"""The inboxes of workers, through which they receive messages from other processes.

Each inbox is a Redis stream of limited length, in its own cluster slot.
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
    """A message to a worker.

    There are five kinds:

    - ``peer``: a message of the Corona protocol from another node.
    - ``ask``: a request from a bot or the console.
    - ``push``: a notice that a hub has pushed a document for a channel. The payload is the channel's id. No reply is
      expected.
    - ``share``: a message from another node about lookup directories, which are lists of channels that nodes keep for
      searches.
    - ``fanout``: a request to help queue a version for a channel's subscribers. The payload is the channel's id.

    ``sender`` is the id of the node that sent the message; "" if it does not come from a node.
    """

    kind: str
    sender: str
    payload: bytes


class NodeInboxes(RedisRepository):
    """Sends messages to workers' inboxes, and reads them. Messages may be lost, so senders may have to repeat them."""

    async def send(self, messages: list[tuple[NodeId, InboxMessage]]) -> None:
        """Append messages to inboxes, in order and in one round trip.

        ``messages`` contains pairs (id of the node to which the message is sent, message).
        """
        commands: list[Command] = []
        for to, message in messages:
            fields = ("k", message.kind, "f", message.sender, "m", message.payload)
            commands.append(append_command(keys.inbox(to), *fields))
        # Inboxes of nodes that are gone expire.
        commands += [("EXPIRE", keys.inbox(to), _INBOX_TTL_S) for to in dict.fromkeys(to for to, _ in messages)]
        await self._redis.call_many(commands)

    async def read(self, node: NodeId, after: str) -> tuple[list[InboxMessage], str]:
        """Wait for messages to a node; return (messages, id of the last message).

        ``after`` is the id that the previous call returned; "0" stands for the beginning of the inbox. If no message
        arrives in time, the result is an empty list and ``after``. If the reader fails before it has processed a
        message, the message is lost.
        """
        found = await wait_for_entries(self._redis, keys.inbox(node), after, _MESSAGES_PER_READ)
        messages = [InboxMessage(fields[b"k"].decode(), fields[b"f"].decode(), fields[b"m"]) for _, fields in found]
        return messages, found[-1][0] if found else after

    async def trim(self, node: NodeId, entry_id: str) -> None:
        """Delete the messages before the one with the id ``entry_id`` from a node's inbox."""
        await self._redis.call("XTRIM", keys.inbox(node), "MINID", entry_id)

    async def delete(self, nodes: tuple[NodeId, ...]) -> None:
        """Delete the inboxes of nodes that have left the ring."""
        if nodes:
            await self._redis.call_many([("UNLINK", keys.inbox(node)) for node in nodes])
