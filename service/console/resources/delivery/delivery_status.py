"""The Delivery page and its API operations: queued notifications, and the last messages to one person.

A person's message log contains the last 20 messages and expires after 30 days without a message. For each message, it
lists the channels, but not the text, which is private.
"""

import asyncio
import time
from typing import Final, Literal

import msgspec
from aiohttp import web

from service.console.api.operations import Operations
from service.console.app_keys import METRICS, STORE
from service.console.auth.permissions import read_access
from service.console.forms import redirect_after
from service.console.page_rendering import render
from service.console.queries import metrics_statistics
from service.console.resources.delivery.dead_letters import delete_dead_letter, get_dead_letters, requeue_dead_letter
from service.model import ChannelId, UserId
from service.store import Store
from service.store.delivery.outbox import ANNOUNCEMENTS, Batch, SentMessage
from service.store.people.user_administration import Person

_MAX_WAITING: Final = 50

DeliveryState = Literal["sending", "awaited", "sent", "received", "failed"]

operation = OPERATIONS = Operations()


class Waiting(msgspec.Struct, frozen=True):
    """The state of the queue of notifications.

    ``people`` is the number of people with undelivered messages, and ``longest`` lists those who have waited longest.
    ``dead_letters`` is the number of messages whose delivery failed permanently.
    """

    people: int
    longest: tuple[Person, ...]
    dead_letters: int


class MessageContent(msgspec.Struct, frozen=True):
    """A channel that a message is about, and the channel's version.

    ``title`` is the channel's title or URL, or "" for a removed channel. ``edits`` is true if the message reports edits
    of known entries.
    """

    channel: ChannelId
    title: str
    version: int
    edits: bool


class Delivery(msgspec.Struct, frozen=True):
    """One message to a person.

    Times are Unix seconds; null means that the event has not happened or was not recorded.

    - ``state`` is ``awaited`` if the server has accepted the message but the client has not confirmed it yet.
    - ``queued_s`` is the time when the oldest content of the message was queued.
    - ``sent_s`` is the time when the XMPP server accepted the message.
    - ``received_s`` is the time when the recipient's client confirmed the message.
    - ``why`` is the reason for a failure.
    - ``tells`` lists the channels and versions that the message is about.
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
    """A person's messages: first those in progress, then the completed ones, each group with the newest first."""

    items: tuple[Delivery, ...]


@operation("GET", "/delivery", read_access("delivery"))
async def get_delivery(request: web.Request) -> Waiting:
    """Get the people with undelivered messages, longest waiting first, and the number of dead letters."""
    store = request.app[STORE]
    uids = await store.outbox.waiting_users()
    longest = await store.people.get_many(uids[:_MAX_WAITING])
    count = await store.dead_letters.count()
    return Waiting(len(uids), tuple(each for each in longest if each is not None), count)


async def page(request: web.Request) -> web.Response:
    """Show people with undelivered messages, and dead letters."""
    waiting, letters = await asyncio.gather(get_delivery(request), get_dead_letters(request))
    counts, _ = request.app[METRICS].recent_growth(time.time())
    return render(
        request,
        "delivery.html",
        waiting=waiting,
        letters=letters,
        messages=counts.get(metrics_statistics.MESSAGES, 0.0),
        delays=metrics_statistics.compute_delays(counts, metrics_statistics.DELIVERY),
    )


requeue = redirect_after(requeue_dead_letter, "/delivery")
drop = redirect_after(delete_dead_letter, "/delivery")


async def read_deliveries(store: Store, uid: UserId) -> Deliveries:
    """Return the messages to the person with the id ``uid``: those in progress, and the last completed ones."""
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
