"""The channels of a deployment and who subscribes to them, as the product would have written them one by one."""

import asyncio
import hashlib
import time
from collections.abc import Sequence
from itertools import count

from service.feeds.examine import examine
from service.feeds.urls import channel_id
from service.feeds.wire import Document, Examine
from service.model import Channel, ChannelId, UserId, Validators
from service.stack.deployment.origin import etag_of, shown
from service.stack.deployment.updates import Updates, url
from service.store import Store, keys
from service.store.channels import Snapshot
from service.store.link import script
from service.store.subscriptions import moment

OBSERVER = "observer@localhost"
"""Subscribes to every channel: its outbox tells when each version was on its way to people."""

_AT_ONCE = 64
_PEOPLE = 1_500


async def add_channels(store: Store, port: int, updates: Updates) -> list[ChannelId]:
    """Create the channels, as a look at what they show now would have, with their subscribers; return ids, in order.

    Each has the observer among its subscribers.
    """
    made: list[ChannelId] = []
    people = _people(updates.subscribers)
    for first in range(0, len(updates.subscribers), _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, len(updates.subscribers)))
        some = await asyncio.gather(*(_add(store, port, updates, number) for number in numbers))
        pairs = [
            (jid, keys.user_id(jid), cid) for number, cid in zip(numbers, some, strict=True) for jid in people[number]
        ]
        await _subscribe(store, pairs)
        made += some
    return made


def _people(subscribers: Sequence[int]) -> list[list[str]]:
    count_of, places = max(_PEOPLE, *subscribers), count()
    return [
        [OBSERVER, *(f"person{next(places) % count_of}@localhost" for _ in range(wanted - 1))] for wanted in subscribers
    ]


async def _add(store: Store, port: int, updates: Updates, number: int) -> ChannelId:
    at, now_s = url(number, port), time.time()
    shows, body = shown(updates, number, now_s)
    findings = examine(Examine((Document(body, at, {}),), b"", at, "feed", now_s))
    known = Validators(etag_of(shows), body_sha256=hashlib.sha256(body).hexdigest())
    channel = Channel(channel_id(at), at, created_s=now_s, private=True)
    latest = tuple(reversed(findings.latest))
    await store.channels.create(channel, Snapshot(known, findings.memory, findings.title, ""), latest, now_s)
    return channel.id


async def _subscribe(store: Store, some: Sequence[tuple[str, UserId, ChannelId]]) -> None:
    link, since = store.link, moment(time.time())
    own = [(keys.user(uid), keys.user_index(uid), keys.intents(uid), keys.restrictions(uid)) for _, uid, _ in some]
    subscribing = zip(own, some, strict=True)
    written = await link.many(
        [script("user_subscribe", held, jid, cid, 1, since, 0, "") for held, (jid, _, cid) in subscribing]
    )
    seqs = [record.split()[1].decode() for _, record, _ in written]
    added = zip(some, seqs, strict=True)
    await asyncio.gather(*(store.index.add(cid, uid, int(seq)) for (_, uid, cid), seq in added))
    await link.many(
        [
            script("user_settle", (keys.intents(uid),), cid, f"add {seq}")
            for (_, uid, cid), seq in zip(some, seqs, strict=True)
        ]
    )
    await link.call("SADD", keys.USERS, *{uid for _, uid, _ in some})
