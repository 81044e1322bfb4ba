"""Requests of bots and the console to workers, and the replies.

Only workers connect to publishers. A request is sent to the inbox of one worker, usually the owner of the channel
(:mod:`service.store.coordination.worker_inboxes`). The reply is pushed to a list whose name contains the request's id.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha1
from typing import Any, Final, Literal, TypeVar

import msgspec

from service.corona.messages import ChannelAdded, encode
from service.corona.optimizer.poll_explanation import PollExplanation
from service.discovery.partial_lookup.strategy_choice import DirectoryChoice
from service.errors import Fault, NoWorker, from_fault
from service.feeds.canonical_urls import channel_id, host_of
from service.feeds.opml_writer import OpmlDocument
from service.model import Channel, ChannelId, Entry, FeedLink, NodeId, PollResult
from service.store.client import keys
from service.store.client.redis_client import MAX_BLOCK_S, RedisClient
from service.store.coordination.host_blocklist import BlockedHosts
from service.store.coordination.worker_inboxes import InboxMessage, NodeInboxes
from service.store.coordination.worker_leases import Ring

_REPLY_TTL_S = 60
_REQUEST_TIMEOUT_S = 9.5
_CONTENT_TIMEOUT_S = 7.0


class ProbeRequest(msgspec.Struct, frozen=True, tag=True):
    """Request to fetch a URL and find its channel. If the URL is a feed, its channel is created or polled again.

    The URL is in canonical form.

    - ``as_page``: use a channel that monitors the page itself, even if the page names feeds. In this case, the URL may
      select a part of the page (:func:`service.feeds.canonical_urls.page_url`).
    - ``keep``: create the channel. If False, nothing is created; the reply has the channel that would be created.
    - ``afresh``: use an existing channel of the page only if it is polled and has not moved. Otherwise, start from the
      page's present content.
    """

    url: str
    as_page: bool = False
    keep: bool = True
    afresh: bool = False


class MoveRequest(msgspec.Struct, frozen=True, tag=True):
    """Request to move a channel to another canonical URL, and to announce the move to the channel's subscribers."""

    channel: ChannelId
    url: str


class PollRequest(msgspec.Struct, frozen=True, tag=True):
    """Request to poll a channel at once. With ``report_progress``, the worker sends a ProgressReply for each step."""

    channel: ChannelId
    report_progress: bool = False


class ExplanationRequest(msgspec.Struct, frozen=True, tag=True):
    """Request to explain how often a channel is polled, and why."""

    channel: ChannelId


class OutlineRequest(msgspec.Struct, frozen=True, tag=True):
    """Request to fetch the OPML list of feeds at a canonical URL."""

    url: str


class LookupRequest(msgspec.Struct, frozen=True, tag=True):
    """Request to a worker to search its part of a lookup directory for channels.

    - ``directory``: attribute-value pair of the directory, which lists the channels with this pair. Several workers
      have a part of it in memory.
    - ``pairs``: all pairs that a channel must have.
    - ``limit``: maximum number of results; the best ones are returned.
    """

    directory: str
    pairs: tuple[str, ...]
    limit: int


class DirectoriesRequest(msgspec.Struct, frozen=True, tag=True):
    """Request for the lookup directories that the worker coordinates.

    A lookup directory is a list of the channels with one attribute-value pair.
    """


class ShareRequest(msgspec.Struct, frozen=True, tag=True):
    """Request for a worker's part of a lookup directory: a list of the channels with one attribute-value pair.

    ``pair`` is this pair.
    """

    pair: str


ContentSource = Literal["cache", "near", "owner", "store", "publisher"]
"""Where a worker found content.

- ``cache``: in its own memory
- ``near``: at a nearby worker
- ``owner``: at the channel's owner
- ``store``: in the store
- ``publisher``: at the publisher
"""


class ContentRequest(msgspec.Struct, frozen=True, tag=True):
    """Request for a channel's latest entries, from the nearest worker that has a copy."""

    channel: ChannelId


RequestBody = (
    ProbeRequest
    | MoveRequest
    | PollRequest
    | ExplanationRequest
    | OutlineRequest
    | LookupRequest
    | DirectoriesRequest
    | ShareRequest
    | ContentRequest
)


class WorkerRequest(msgspec.Struct, frozen=True):
    """A request to a worker. The reply is sent under the request's ``id``.

    After ``until_s`` (Unix s, Redis's clock) the sender no longer waits for the reply.
    """

    id: str
    body: RequestBody
    until_s: float


class ProbeReply(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Reply to a ProbeRequest: a channel, several feeds to choose from, or a page without feeds.

    - ``channel``: the channel at the URL; None in the other two cases.
    - ``latest``: the channel's entries, newest first.
    - ``discovered``: True if the URL is that of a page that names the channel's feed.
    - ``choices``: the feeds that the page names, if there are several.
    - ``page``: True if the page names no feed, and can be monitored itself.
    """

    channel: Channel | None = None
    latest: tuple[Entry, ...] = ()
    choices: tuple[FeedLink, ...] = ()
    discovered: bool = False
    page: bool = False


class ProgressReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to a PollRequest after each step of the poll. Another reply with the result follows.

    ``text`` describes the step. ``elapsed_s`` is the time since the start of the poll, in seconds.
    """

    text: str
    elapsed_s: float


class MoveReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to a MoveRequest: the move is recorded, and is carried out even if the worker fails."""


class PollReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to a PollRequest: the result of the poll."""

    result: PollResult


class ExplanationReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to an ExplanationRequest: how often the channel is polled, and why."""

    reason: PollExplanation


class OutlineReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to an OutlineRequest: the content of the OPML list."""

    outline: OpmlDocument


class LookupReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to a LookupRequest: the ids of matching channels, best first.

    - ``worker``: the node that replied.
    - ``examined``: number of channels that the node compared with the request; 0 if it has no part of the directory.
    """

    worker: NodeId
    names: tuple[ChannelId, ...]
    examined: int


class DirectoriesReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to a DirectoriesRequest: the lists of channels (lookup directories) that the worker coordinates."""

    directories: tuple[DirectoryChoice, ...]


class ShareReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to a ShareRequest: the channels in the worker's part of the lookup directory, in no particular order."""

    channels: tuple[ChannelId, ...]


class ContentReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to a ContentRequest: a channel's latest entries at ``version``, newest first.

    - ``source``: where the entries were found.
    - ``worker``: name of another worker that had the entries; "" if they were not found at another worker.
    - ``hops``: distance of this other worker in hops; 0 if there is none.
    """

    version: int
    latest: tuple[Entry, ...]
    source: ContentSource
    hops: int = 0
    worker: str = ""


class ErrorReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to any request: the request failed with the error ``fault``."""

    fault: Fault


WorkerReply = (
    ProbeReply
    | MoveReply
    | ProgressReply
    | PollReply
    | ExplanationReply
    | OutlineReply
    | LookupReply
    | DirectoriesReply
    | ShareReply
    | ContentReply
    | ErrorReply
)


_REPLY_TYPES: Final[Any] = WorkerReply
_A = TypeVar("_A")


async def next_reply(redis: RedisClient, request_id: str, until_s: float, reply_type: type[_A]) -> _A | None:
    """Wait for the next reply to the request ``request_id``; return None if no reply arrives until ``until_s``.

    ``until_s`` is a time of the monotonic clock. ``reply_type`` is the union of the expected types of replies. If the
    reply is an ErrorReply, its error is raised.
    """
    while (left_s := until_s - time.monotonic()) > 0:
        found = await redis.call_blocking("BLPOP", keys.reply(request_id), min(left_s, MAX_BLOCK_S))
        if found:
            reply = msgspec.msgpack.decode(found[1], type=reply_type)
            if isinstance(reply, ErrorReply):
                raise from_fault(reply.fault)
            return reply
    return None


def expect_reply(reply: object, kind: type[_A]) -> _A:
    """Return ``reply`` if its type is ``kind``. Raises :class:`NoWorker` if it is not."""
    if isinstance(reply, kind):
        return reply
    raise NoWorker(f"{type(reply).__name__} is no answer to that request: the fleet's versions differ.")


class WorkerRequests:
    """Sends requests to the responsible worker and returns the replies.

    Each method raises the error with which the worker replied, or :class:`NoWorker` if no worker replied.
    """

    def __init__(self, redis: RedisClient, inboxes: NodeInboxes, ring: Ring, blocks: BlockedHosts) -> None:
        self._blocks = blocks
        self._redis = redis
        self._inboxes = inboxes
        self._ring = ring

    async def probe(self, url: str, *, as_page: bool = False, keep: bool = True, afresh: bool = False) -> ProbeReply:
        """Let a worker fetch a URL; return the channel of the feed or page, or the feeds that the page names.

        - ``url``: URL in canonical form.
        - ``as_page``: use a channel that monitors the page itself, even if the page names feeds.
        - ``keep``: create the channel, or start to poll it again. If False, nothing is stored.
        - ``afresh``: use an existing channel of the page only if it is polled and has not moved. Otherwise, start from
          the page's present content.

        Raises :class:`HostBlocked` if an admin has blocked the host of the URL.
        """
        await self._blocks.check(host_of(url))
        return await self._request(channel_id(url), ProbeRequest(url, as_page, keep, afresh), ProbeReply)

    async def move(self, cid: ChannelId, url: str) -> None:
        """Move a channel to another URL, which the caller has probed before. The call is idempotent."""
        await self._request(cid, MoveRequest(cid, url), MoveReply)

    async def poll_now(
        self, cid: ChannelId, *, on_progress: Callable[[ProgressReply], Awaitable[None]] | None = None
    ) -> PollResult:
        """Poll a channel at once and return the result; ``on_progress`` is called with each step."""
        return (
            await self._request(cid, PollRequest(cid, on_progress is not None), PollReply, on_progress=on_progress)
        ).result

    async def explain(self, cid: ChannelId, timeout_s: float = _REQUEST_TIMEOUT_S) -> PollExplanation:
        """Return how often a channel is polled, and why.

        ``timeout_s`` is the maximum time in seconds to wait for a worker's reply.
        """
        return (await self._request(cid, ExplanationRequest(cid), ExplanationReply, timeout_s)).reason

    async def content(self, cid: ChannelId) -> ContentReply:
        """Return a channel's latest entries from the nearest worker that has a copy.

        If no worker replies, :class:`NoWorker` is raised. The caller then has to read the entries from the store.
        """
        return await self._request(cid, ContentRequest(cid), ContentReply, _CONTENT_TIMEOUT_S)

    async def outline(self, url: str) -> OpmlDocument:
        """Return the OPML list at a canonical URL."""
        return (await self._request(channel_id(url), OutlineRequest(url), OutlineReply)).outline

    async def directories(self) -> list[DirectoryChoice]:
        """Return the lookup directories of all workers that reply, sorted by attribute-value pair.

        A lookup directory is a list of the channels with one pair, kept in memory for searches.
        """
        nodes = [node.id for node in await self._ring.nodes()]
        found = await asyncio.gather(
            *(self._request_or_none(node, DirectoriesRequest(), DirectoriesReply) for node in nodes)
        )
        return sorted((each for own in found if own for each in own.directories), key=lambda each: each.pair)

    async def shares(self, pair: str) -> list[tuple[ChannelId, ...] | None]:
        """Return the part of a lookup directory that each worker has: the channels that it stores.

        A lookup directory is a list of the channels with the attribute-value pair ``pair``. The result has one element
        per worker, beginning with the directory's coordinator; None for a worker that does not reply.
        """
        ring = await self._ring.view()
        nodes = sorted(ring.ids)
        first = ring.owner(sha1(pair.encode(), usedforsecurity=False).hexdigest())
        begin = nodes.index(first) if first in nodes else 0
        in_turn = nodes[begin:] + nodes[:begin]
        found = await asyncio.gather(*(self._request_or_none(node, ShareRequest(pair), ShareReply) for node in in_turn))
        return [share.channels if share else None for share in found]

    async def announce_channel(self, cid: ChannelId) -> None:
        """Notify a channel's owner of a new subscription.

        If the message is lost, the owner notices the subscription when it next reads all its channels.
        """
        await self._notify_owner(cid, InboxMessage("peer", "", encode("", ChannelAdded(cid))))

    async def announce_push(self, cid: ChannelId) -> None:
        """Notify a channel's owner that a document from the channel's hub is queued.

        If the message is lost, a poll finds the content.
        """
        await self._notify_owner(cid, InboxMessage("push", "", cid.encode()))

    async def _notify_owner(self, cid: ChannelId, message: InboxMessage) -> None:
        owner = (await self._ring.view()).owner(cid)
        if owner is not None:
            await self._inboxes.send([(owner, message)])

    async def _request_or_none(self, node: NodeId, body: RequestBody, kind: type[_A]) -> _A | None:
        with suppress(NoWorker):
            return await self._request(node, body, kind)
        return None

    async def _request(
        self,
        cid: ChannelId,
        body: RequestBody,
        kind: type[_A],
        timeout_s: float = _REQUEST_TIMEOUT_S,
        on_progress: Callable[[ProgressReply], Awaitable[None]] | None = None,
    ) -> _A:
        """Send a request to the worker that owns the id ``cid``; return the reply, whose type must be ``kind``.

        - ``timeout_s``: maximum time in seconds to wait for the reply.
        - ``on_progress``: called with each ProgressReply that precedes the reply; None to ignore them.
        """
        now_s, ring = await self._ring.time_and_view()
        owner = ring.owner(cid)
        if owner is None:
            raise NoWorker("No worker is running, so nothing can be looked at. Try again in a moment.")
        request = WorkerRequest(secrets.token_urlsafe(12), body, now_s + timeout_s)
        await self._inboxes.send([(owner, InboxMessage("ask", "", msgspec.msgpack.encode(request)))])
        until_s = time.monotonic() + timeout_s
        while (reply := await next_reply(self._redis, request.id, until_s, _REPLY_TYPES)) is not None:
            if not isinstance(reply, ProgressReply):
                return expect_reply(reply, kind)
            if on_progress is not None:
                await on_progress(reply)
        raise NoWorker(f"No worker answered within {timeout_s:.0f} s. Try again in a moment.")

    async def reply(self, request: WorkerRequest, reply: WorkerReply) -> None:
        """Send a reply to a request, possibly a ProgressReply that precedes the result. Workers call this."""
        await send_reply(self._redis, request.id, reply)


async def send_reply(redis: RedisClient, request_id: str, reply: msgspec.Struct) -> None:
    """Send ``reply`` to the sender of the request ``request_id``."""
    key = keys.reply(request_id)
    await redis.call_many([("RPUSH", key, msgspec.msgpack.encode(reply)), ("EXPIRE", key, _REPLY_TTL_S)])
