"""What became of one person's last messages: a log that ends after 20 messages, or 30 days without any.

It says of which channels a message told and how many things, never what: that is between the publisher and the person.
"""

import asyncio
from typing import Literal

import msgspec

from service.console.people import person
from service.model import ChannelId, UserId
from service.store import Store
from service.store.outbox import Batch, OutboxItem, ToldMessage


class ToldOf(msgspec.Struct, frozen=True):
    """A channel by its title, or URL; "" for one that is gone. Its page of versions tells what was new."""

    channel: ChannelId
    title: str
    version: int
    edits: bool


class Delivery(msgspec.Struct, frozen=True):
    """One message. Times are Unix seconds, null for what has not happened, or was not noted.

    ``queued_s`` is when the oldest of what it tells was queued, ``sent_s`` when the server took it, ``received_s`` when
    the person's client confirmed it. ``awaited``: the server has it, and its receipt is awaited. ``why`` it failed.
    """

    id: str
    state: Literal["sending", "awaited", "sent", "received", "failed"]
    queued_s: float | None
    sent_s: float | None
    received_s: float | None
    attempts: int
    why: str
    tells: tuple[ToldOf, ...]


class Deliveries(msgspec.Struct, frozen=True):
    """Somebody's messages, newest first: those that are under way, and the last ones."""

    items: tuple[Delivery, ...]


async def deliveries(store: Store, uid: UserId) -> Deliveries:
    """Return what became of somebody's last messages. Raises :class:`service.errors.NoSuchThing`."""
    await person(store, uid)
    log, flying = await asyncio.gather(store.outbox.log(uid), store.outbox.inflight([uid]))
    known = {message.message_id: message for message in log}
    under_way = list(reversed(flying[uid]))
    ended = [message for message in log if message.message_id not in {batch.message_id for batch in under_way}]
    every: list[Batch | ToldMessage] = [*under_way, *ended]
    cids = {item.channel for each in every for item in each.items}
    titles = {channel.id: channel.title or channel.url for channel in await store.channels.many(list(cids)) if channel}
    return Deliveries(
        (
            *(_under_way(batch, known.get(batch.message_id), titles) for batch in under_way),
            *(_ended(message, titles) for message in ended),
        )
    )


def _under_way(batch: Batch, noted: ToldMessage | None, titles: dict[ChannelId, str]) -> Delivery:
    return Delivery(
        id=batch.message_id,
        state="awaited" if batch.acked else "sending",
        queued_s=_queued_s(batch.items),
        sent_s=noted.sent_s if noted else None,
        received_s=None,
        attempts=batch.tries,
        why="",
        tells=_tells(batch.items, titles),
    )


def _ended(message: ToldMessage, titles: dict[ChannelId, str]) -> Delivery:
    return Delivery(
        id=message.message_id,
        state="failed" if message.why else "received" if message.received_s is not None else "sent",
        queued_s=_queued_s(message.items),
        sent_s=message.sent_s,
        received_s=message.received_s,
        attempts=message.tries,
        why=message.why,
        tells=_tells(message.items, titles),
    )


def _queued_s(items: tuple[OutboxItem, ...]) -> float | None:
    return min((item.queued_s for item in items), default=None)


def _tells(items: tuple[OutboxItem, ...], titles: dict[ChannelId, str]) -> tuple[ToldOf, ...]:
    return tuple(ToldOf(item.channel, titles.get(item.channel, ""), item.version, item.edits) for item in items)
