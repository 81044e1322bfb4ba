"""The page Delivery and its API operations: queued notifications, dead letters, and one person's last messages.

A dead letter is a message whose delivery failed permanently.

A person's message log has the last 20 messages and expires after 30 days without a message. It names the channels of a
message, but not its text, which is private.
"""

import asyncio
import time
from typing import Final, Literal

import msgspec
from aiohttp import web

from service.console import metrics_sampler
from service.console.auth.roles import read_access, write_access
from service.console.forms import redirect_after
from service.console.openapi import CURSOR, LIMIT, Operations
from service.console.pagination import read_limit, read_log_cursor
from service.console.rendering import METRICS, STORE, render
from service.model import ChannelId, UserId
from service.store import Store
from service.store.delivery.outbox import ANNOUNCEMENTS, Batch, SentMessage
from service.store.people.user_administration import Person

_MAX_WAITING: Final = 50
_NO_LETTER: Final = "There is no such dead letter. It may have been queued again or deleted."

DeliveryState = Literal["sending", "awaited", "sent", "received", "failed"]

operation = OPERATIONS = Operations()


class Waiting(msgspec.Struct, frozen=True):
    """The state of the queue of notifications.

    ``people`` is the number of people with undelivered messages. ``longest`` are those who have waited longest.
    """

    people: int
    longest: tuple[Person, ...]
    dead_letters: int


class DeadLetterView(msgspec.Struct, frozen=True):
    """A message whose delivery failed permanently at ``at_s`` (Unix s) for the reason ``why``.

    ``jid`` is the recipient's address, or "" if the recipient has been deleted. ``items`` is the number of
    notifications in the message. A message that is not ``readable`` is corrupt and can only be deleted.
    """

    id: str
    user: UserId
    jid: str
    at_s: float
    why: str
    items: int
    readable: bool


class DeadLetterPage(msgspec.Struct, frozen=True):
    """One page of the list of dead letters, newest first.

    ``next`` is the cursor of the next page; "" means that this is the last page.
    """

    items: tuple[DeadLetterView, ...]
    next: str


class MessageContent(msgspec.Struct, frozen=True):
    """The channel and the version that a message is about.

    ``title`` is the channel's title or URL, or "" for a removed channel. ``edits`` says that the message is about edits
    of known entries.
    """

    channel: ChannelId
    title: str
    version: int
    edits: bool


class Delivery(msgspec.Struct, frozen=True):
    """One message to a person.

    Times are Unix seconds; null means that the event has not happened or was not recorded. ``queued_s`` is the time
    when the oldest content of the message was queued. At ``sent_s`` the XMPP server accepted it, and at ``received_s``
    the recipient's client confirmed it. The state ``awaited`` means that the server has accepted the message and the
    client has not confirmed it yet. ``why`` is the reason of a failure. ``tells`` has the channels and versions in the
    message.
    """

    id: str
    state: DeliveryState
    queued_s: float | None
    sent_s: float | None
    received_s: float | None
    attempts: int
    why: str
    tells: tuple[MessageContent, ...]


class Deliveries(msgspec.Struct, frozen=True):
    """A person's messages: first the messages in progress, then the completed ones, each newest first."""

    items: tuple[Delivery, ...]


@operation("GET", "/delivery", read_access("delivery"))
async def get_delivery(request: web.Request) -> Waiting:
    """Get the people with undelivered messages, longest waiting first, and the number of dead letters."""
    store = request.app[STORE]
    uids = await store.outbox.waiting_users()
    longest = await store.people.get_many(uids[:_MAX_WAITING])
    count = await store.dead_letters.count()
    return Waiting(len(uids), tuple(each for each in longest if each is not None), count)


@operation("GET", "/dead-letters", read_access("delivery"), 422, query=(CURSOR, LIMIT))
async def get_dead_letters(request: web.Request) -> DeadLetterPage:
    """List dead letters, newest first."""
    store = request.app[STORE]
    letters, next_cursor = await store.dead_letters.page(read_log_cursor(request), read_limit(request))
    jids = await store.people.jids([letter.user for letter in letters])
    views = (
        DeadLetterView(each.id, each.user, jid, each.at_s, each.why, len(each.items), each.readable)
        for each, jid in zip(letters, jids, strict=True)
    )
    return DeadLetterPage(tuple(views), next_cursor)


@operation("POST", "/dead-letters/{letter}/requeue", write_access("delivery"), 404)
async def requeue_dead_letter(request: web.Request) -> None:
    """Queue the content of a dead letter for delivery again."""
    if not await request.app[STORE].dead_letters.requeue(request.match_info["letter"]):
        raise web.HTTPNotFound(text=_NO_LETTER)


@operation("DELETE", "/dead-letters/{letter}", write_access("delivery"), 404)
async def delete_dead_letter(request: web.Request) -> None:
    """Delete a dead letter."""
    if not await request.app[STORE].dead_letters.drop(request.match_info["letter"]):
        raise web.HTTPNotFound(text=_NO_LETTER)


async def page(request: web.Request) -> web.Response:
    """Show people with undelivered messages, and dead letters."""
    waiting, letters = await asyncio.gather(get_delivery(request), get_dead_letters(request))
    counts, _ = request.app[METRICS].recent_growth(time.time())
    return render(
        request,
        "delivery.html",
        waiting=waiting,
        letters=letters,
        messages=counts.get(metrics_sampler.MESSAGES, 0.0),
        delays=metrics_sampler.compute_delays(counts, metrics_sampler.DELIVERY),
    )


requeue = redirect_after(requeue_dead_letter, "/delivery")
drop = redirect_after(delete_dead_letter, "/delivery")


async def read_deliveries(store: Store, uid: UserId) -> Deliveries:
    """Return the messages to the person ``uid`` that are in progress, and the last completed messages."""
    log, in_flight = await asyncio.gather(store.outbox.history(uid), store.outbox.in_flight([uid]))
    logged = {message.message_id: message for message in log}
    batches = list(reversed(in_flight[uid]))
    completed = [message for message in log if message.message_id not in {batch.message_id for batch in batches}]
    messages: list[Batch | SentMessage] = [*batches, *completed]
    cids = list({item.channel for message in messages for item in message.items})
    titles = {each.id: each.title or each.url for each in await store.channels.get_many(cids) if each}
    titles[ANNOUNCEMENTS] = "Announcement"
    return Deliveries(tuple(_delivery(message, logged.get(message.message_id), titles) for message in messages))


def _delivery(message: Batch | SentMessage, logged: SentMessage | None, titles: dict[ChannelId, str]) -> Delivery:
    state: DeliveryState
    if isinstance(message, Batch):
        state, received_s, why = ("awaited" if message.acked else "sending"), None, ""
    else:
        received_s, why = message.received_s, message.why
        state = "failed" if why else "received" if received_s is not None else "sent"
    return Delivery(
        id=message.message_id,
        state=state,
        queued_s=min((item.queued_s for item in message.items), default=None),
        sent_s=logged.sent_s if logged else None,
        received_s=received_s,
        attempts=message.tries,
        why=why,
        tells=tuple(
            MessageContent(each.channel, titles.get(each.channel, ""), each.version, each.edits)
            for each in message.items
        ),
    )
