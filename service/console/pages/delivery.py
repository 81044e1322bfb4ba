"""Delivery of messages: who waits, dead letters, and one person's last messages; as the page Delivery and in the API.

The log of a person's messages ends after 20 messages, or 30 days without any. It says of which channels a message told
and how many things, never what: that is between the publisher and the person.
"""

import asyncio
from typing import Final, Literal

import msgspec
from aiohttp import web

from service.console import metrics_sampler
from service.console.auth.roles import act, look
from service.console.openapi import CURSOR, LIMIT, Operations
from service.console.rendering import CLOCK, PULSE, STORE, limit, log_cursor, render
from service.model import ChannelId, UserId
from service.store import Store
from service.store.delivery.outbox import Batch, SentMessage
from service.store.people.people import Person

_PAGE: Final = 50
_WAITING_SHOWN: Final = 50

operation = OPERATIONS = Operations()


class Waiting(msgspec.Struct, frozen=True):
    """How many people wait for something, and those who wait longest; how many messages were given up."""

    people: int
    longest: tuple[Person, ...]
    dead_letters: int


class Letter(msgspec.Struct, frozen=True):
    """A message that was given up: for whom, "" if they are forgotten, when (Unix s), and why.

    What is not ``readable`` can only be forgotten.
    """

    id: str
    user: UserId
    jid: str
    at_s: float
    why: str
    items: int
    readable: bool


class Letters(msgspec.Struct, frozen=True):
    """Messages that were given up, newest first; ``next`` is the cursor of those before, "" at the end."""

    items: tuple[Letter, ...]
    next: str


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


@operation("GET", "/delivery", look("delivery"))
async def get_delivery(request: web.Request) -> Waiting:
    """Who waits for messages, longest first, and how many messages were given up."""
    store = request.app[STORE]
    uids = await store.outbox.waiting_users()
    longest = await store.people.get_many(uids[:_WAITING_SHOWN])
    count = await store.dead_letters.count()
    return Waiting(len(uids), tuple(each for each in longest if each is not None), count)


@operation("GET", "/dead-letters", look("delivery"), 422, query=(CURSOR, LIMIT))
async def get_dead_letters(request: web.Request) -> Letters:
    """Messages that were given up, newest first."""
    store = request.app[STORE]
    found, following = await store.dead_letters.page(log_cursor(request), limit(request, _PAGE))
    jids = await store.people.jids([letter.user for letter in found])
    pairs = zip(found, jids, strict=True)
    return Letters(
        tuple(
            Letter(each.id, each.user, jid, each.at_s, each.why, len(each.items), each.readable) for each, jid in pairs
        ),
        following,
    )


@operation("POST", "/dead-letters/{letter}/requeue", act("delivery"), 404)
async def requeue_dead_letter(request: web.Request) -> None:
    """Have what a dead letter would have told be told after all."""
    if not await request.app[STORE].dead_letters.requeue(request.match_info["letter"]):
        raise _no_letter()


@operation("DELETE", "/dead-letters/{letter}", act("delivery"), 404)
async def delete_dead_letter(request: web.Request) -> None:
    """Forget a dead letter."""
    if not await request.app[STORE].dead_letters.drop(request.match_info["letter"]):
        raise _no_letter()


def _no_letter() -> web.HTTPNotFound:
    return web.HTTPNotFound(text="There is no such dead letter. It may have been sent again or dropped.")


async def page(request: web.Request) -> web.Response:
    """Show who waits, and what was given up."""
    waiting, letters = await asyncio.gather(get_delivery(request), get_dead_letters(request))
    grown, _ = request.app[PULSE].recent_growth(request.app[CLOCK].wall_s())
    return render(
        request,
        "delivery.html",
        waiting=waiting,
        letters=letters,
        first=not request.query.get("cursor"),
        messages=metrics_sampler.messages(grown),
        delays=metrics_sampler.delays(grown, metrics_sampler.DELIVERY),
    )


async def requeue(request: web.Request) -> web.Response:
    """Queue what was given up once more."""
    await requeue_dead_letter(request)
    raise web.HTTPSeeOther("/delivery")


async def drop(request: web.Request) -> web.Response:
    """Forget a message that was given up."""
    await delete_dead_letter(request)
    raise web.HTTPSeeOther("/delivery")


async def deliveries(store: Store, uid: UserId) -> Deliveries:
    """Return what became of somebody's last messages."""
    log, flying = await asyncio.gather(store.outbox.history(uid), store.outbox.in_flight([uid]))
    noted = {message.message_id: message for message in log}
    under_way = list(reversed(flying[uid]))
    ended = [message for message in log if message.message_id not in {batch.message_id for batch in under_way}]
    every: list[Batch | SentMessage] = [*under_way, *ended]
    cids = {item.channel for each in every for item in each.items}
    titles = {
        channel.id: channel.title or channel.url for channel in await store.channels.get_many(list(cids)) if channel
    }
    return Deliveries(tuple(_delivery(each, noted.get(each.message_id), titles) for each in every))


def _delivery(message: Batch | SentMessage, noted: SentMessage | None, titles: dict[ChannelId, str]) -> Delivery:
    state: Literal["sending", "awaited", "sent", "received", "failed"]
    received_s, why = None, ""
    if isinstance(message, Batch):
        state = "awaited" if message.acked else "sending"
    else:
        received_s, why = message.received_s, message.why
        state = "failed" if why else "received" if received_s is not None else "sent"
    return Delivery(
        id=message.message_id,
        state=state,
        queued_s=min((item.queued_s for item in message.items), default=None),
        sent_s=noted.sent_s if noted else None,
        received_s=received_s,
        attempts=message.tries,
        why=why,
        tells=tuple(
            ToldOf(item.channel, titles.get(item.channel, ""), item.version, item.edits) for item in message.items
        ),
    )
