"""Requests from bots and the console to workers, and the replies.

Such requests are needed because only workers connect to publishers. A request is sent to the inbox of one worker,
usually the owner of the channel (:mod:`service.store.coordination.worker_inboxes`). The worker appends the reply to a
list whose name contains the request's id.
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
    """Asks a worker to fetch ``url``, a URL in canonical form, and to find the channel for it.

    - ``as_page``: use a channel that monitors the page itself, even if the page names feeds. In this case, the URL
      may select a part of the page (:func:`service.feeds.canonical_urls.page_url`).
    - ``keep``: if True, the channel is created, or polled again if it is dormant (not polled). If False, nothing is
      stored, and the reply contains the channel that would be created.
    - ``afresh``: used only with ``as_page``. If True, the stored state of a channel that is dormant or has moved is
      ignored. The page's present content then becomes the channel's first content.
    - ``credential``: a sealed credential (:mod:`service.net.credential_vault`), if ``url`` is that of a protected
      channel. If a document is found with it, it becomes the channel's credential.
    """

    url: str
    as_page: bool = False
    keep: bool = True
    afresh: bool = False
    credential: str = ""


class MoveRequest(msgspec.Struct, frozen=True, tag=True):
    """Asks a worker to move a channel to ``url``, a canonical URL, and to announce the move to its subscribers."""

    channel: ChannelId
    url: str


class PollRequest(msgspec.Struct, frozen=True, tag=True):
    """Asks a worker to poll a channel immediately.

    If ``report_progress`` is True, the worker sends a :class:`ProgressReply` after each step of the poll.
    """

    channel: ChannelId
    report_progress: bool = False


class ExplanationRequest(msgspec.Struct, frozen=True, tag=True):
    """Asks a worker to explain how often a channel is polled, and why."""

    channel: ChannelId


class OutlineRequest(msgspec.Struct, frozen=True, tag=True):
    """Asks a worker to fetch the OPML list of feeds at ``url``, a canonical URL."""

    url: str


class LookupRequest(msgspec.Struct, frozen=True, tag=True):
    """Asks a worker to search its part of a lookup directory.

    A lookup directory is a list of all channels that have a certain attribute-value pair. Several workers each keep a
    part of the list in memory.

    - ``directory``: the attribute-value pair of the lookup directory.
    - ``pairs``: attribute-value pairs, all of which a matching channel must have.
    - ``limit``: maximum number of results. The best matches are returned.
    """

    directory: str
    pairs: tuple[str, ...]
    limit: int


class DirectoriesRequest(msgspec.Struct, frozen=True, tag=True):
    """Asks a worker for the lookup directories that it coordinates.

    A lookup directory is a list of all channels that have a certain attribute-value pair. Its coordinator is the
    worker that distributes the list among the workers.
    """


class ShareRequest(msgspec.Struct, frozen=True, tag=True):
    """Asks a worker for its part of the lookup directory for the attribute-value pair ``pair``.

    A lookup directory is a list of all channels that have a certain attribute-value pair.
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
    """Asks a worker for a channel's latest entries.

    If the worker has no copy of them, it gets them from the nearest worker with a copy, from the store, or from the
    publisher.
    """

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
    """A request to a worker. The worker appends the reply to a Redis list named after the request's ``id``.

    After ``until_s`` (Unix s, Redis's clock), the sender no longer waits for the reply.
    """

    id: str
    body: RequestBody
    until_s: float


class ProbeReply(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Reply to a :class:`ProbeRequest`: a channel, several feeds to choose from, or a page without feeds.

    - ``channel``: the channel that was found; None if there are several feeds or none.
    - ``latest``: the channel's entries, newest first.
    - ``choices``: the feeds that the page names, if there are several.
    - ``discovered``: True if the channel is a feed at a URL other than the requested one. The worker found that URL in
      the page, or tried it because sites commonly publish feeds there.
    - ``page``: True if the page names no feed, but can itself be monitored.
    """

    channel: Channel | None = None
    latest: tuple[Entry, ...] = ()
    choices: tuple[FeedLink, ...] = ()
    discovered: bool = False
    page: bool = False


class ProgressReply(msgspec.Struct, frozen=True, tag=True):
    """Interim reply to a :class:`PollRequest`, sent after a step of the poll. The final reply follows later.

    ``text`` describes the step. ``elapsed_s`` is the time since the start of the poll, in seconds.
    """

    text: str
    elapsed_s: float


class MoveReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to a :class:`MoveRequest`: the move is recorded, and will be carried out even if the worker fails."""


class PollReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to a :class:`PollRequest`: the result of the poll."""

    result: PollResult


class ExplanationReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to an :class:`ExplanationRequest`: how often the channel is polled, and why."""

    reason: PollExplanation


class OutlineReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to an :class:`OutlineRequest`: the content of the OPML list."""

    outline: OpmlDocument


class LookupReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to a :class:`LookupRequest`.

    - ``worker``: the node that replies.
    - ``names``: ids of the matching channels, best match first.
    - ``examined``: how many channels the node has compared with the request; 0 if it has no part of the lookup
      directory.
    """

    worker: NodeId
    names: tuple[ChannelId, ...]
    examined: int


class DirectoriesReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to a :class:`DirectoriesRequest`: the lookup directories that the worker coordinates."""

    directories: tuple[DirectoryChoice, ...]


class ShareReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to a :class:`ShareRequest`: the channels in the worker's part of the lookup directory, in any order."""

    channels: tuple[ChannelId, ...]


class ContentReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to a :class:`ContentRequest`: a channel's latest entries at version ``version``, newest first.

    - ``source``: where the entries were found.
    - ``worker``: name of the other worker that provided the entries; "" if no other worker was involved.
    - ``hops``: distance in hops to that other worker; 0 if no other worker was involved.
    """

    version: int
    latest: tuple[Entry, ...]
    source: ContentSource
    hops: int = 0
    worker: str = ""


class ErrorReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to any request that has failed. ``fault`` describes the error."""

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
    """Wait until ``until_s`` for the next reply to a request; return the reply, or None if none arrives in time.

    ``until_s`` is a time of the monotonic clock in seconds. ``reply_type`` is the union of the types that replies may
    have. If the reply is an :class:`ErrorReply`, its error is raised.
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
    """Return ``reply`` if its type is ``kind``. Raises :class:`NoWorker` otherwise."""
    if isinstance(reply, kind):
        return reply
    raise NoWorker(f"{type(reply).__name__} is no answer to that request: the fleet's versions differ.")


class WorkerRequests:
    """Sends each request to the responsible worker and returns its reply.

    If the worker replies with an error, this error is raised. If no worker replies in time, :class:`NoWorker` is
    raised.
    """

    def __init__(self, redis: RedisClient, inboxes: NodeInboxes, ring: Ring, blocks: BlockedHosts) -> None:
        self._blocks = blocks
        self._redis = redis
        self._inboxes = inboxes
        self._ring = ring

    async def probe(
        self, url: str, *, as_page: bool = False, keep: bool = True, afresh: bool = False, credential: str = ""
    ) -> ProbeReply:
        """Have a worker fetch a URL; return the channel found there, or the feeds that the page names.

        - ``url``: URL in canonical form.
        - ``as_page``: use a channel that monitors the page itself, even if the page names feeds.
        - ``keep``: if True, the channel is created, or polled again if it is dormant (not polled). If False, nothing is
          stored.
        - ``afresh``: used only with ``as_page``. If True, the stored state of a channel that is dormant or has moved is
          ignored. The page's present content then becomes the channel's first content.
        - ``credential``: sealed credential with which to fetch a protected channel; "" for other channels.

        Raises :class:`HostBlocked` if an admin has blocked the URL's host.
        """
        await self._blocks.check(host_of(url))
        return await self._request(channel_id(url), ProbeRequest(url, as_page, keep, afresh, credential), ProbeReply)

    async def move(self, cid: ChannelId, url: str) -> None:
        """Move a channel to ``url``. The caller must have passed ``url`` to :meth:`probe` before.

        The call is idempotent.
        """
        await self._request(cid, MoveRequest(cid, url), MoveReply)

    async def poll_now(
        self, cid: ChannelId, *, on_progress: Callable[[ProgressReply], Awaitable[None]] | None = None
    ) -> PollResult:
        """Poll a channel immediately and return the result.

        ``on_progress`` is called with a :class:`ProgressReply` after each step of the poll. If it is None, progress is
        not reported.
        """
        return (
            await self._request(cid, PollRequest(cid, on_progress is not None), PollReply, on_progress=on_progress)
        ).result

    async def explain(self, cid: ChannelId, timeout_s: float = _REQUEST_TIMEOUT_S) -> PollExplanation:
        """Return how often a channel is polled, and why.

        ``timeout_s`` is the maximum number of seconds to wait for the reply.
        """
        return (await self._request(cid, ExplanationRequest(cid), ExplanationReply, timeout_s)).reason

    async def content(self, cid: ChannelId) -> ContentReply:
        """Return a channel's latest entries, from the nearest worker that has a copy.

        Raises :class:`NoWorker` if no worker replies. The caller then has to read the entries from the store.
        """
        return await self._request(cid, ContentRequest(cid), ContentReply, _CONTENT_TIMEOUT_S)

    async def outline(self, url: str) -> OpmlDocument:
        """Fetch the OPML list at ``url``, a canonical URL, and return its content."""
        return (await self._request(channel_id(url), OutlineRequest(url), OutlineReply)).outline

    async def directories(self) -> list[DirectoryChoice]:
        """Return the lookup directories that workers coordinate, sorted by attribute-value pair.

        A lookup directory is a list of all channels that have a certain attribute-value pair, kept in memory for
        searches. The result does not include the directories of workers that do not reply.
        """
        nodes = [node.id for node in await self._ring.nodes()]
        found = await asyncio.gather(
            *(self._request_or_none(node, DirectoriesRequest(), DirectoriesReply) for node in nodes)
        )
        return sorted((each for own in found if own for each in own.directories), key=lambda each: each.pair)

    async def shares(self, pair: str) -> list[tuple[ChannelId, ...] | None]:
        """Return each worker's part of the lookup directory for the attribute-value pair ``pair``.

        A lookup directory is a list of all channels that have this pair. The result has one element per worker,
        beginning with the directory's coordinator: the ids of the channels in the worker's part, or None if the worker
        does not reply.
        """
        ring = await self._ring.view()
        nodes = sorted(ring.ids)
        first = ring.owner(sha1(pair.encode(), usedforsecurity=False).hexdigest())
        begin = nodes.index(first) if first in nodes else 0
        in_turn = nodes[begin:] + nodes[:begin]
        found = await asyncio.gather(*(self._request_or_none(node, ShareRequest(pair), ShareReply) for node in in_turn))
        return [share.channels if share else None for share in found]

    async def announce_channel(self, cid: ChannelId) -> None:
        """Notify a channel's owner that a user has subscribed to the channel.

        If the notice is lost, the owner notices the subscription when it next reads all its channels.
        """
        await self._notify_owner(cid, InboxMessage("peer", "", encode("", ChannelAdded(cid))))

    async def announce_push(self, cid: ChannelId) -> None:
        """Notify a channel's owner that a document pushed by the channel's hub is queued.

        If the notice is lost, the next poll finds the content.
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
        """Send a request to the owner of ``cid``; return the reply, which must be of type ``kind``.

        - ``cid``: a channel id or a node id. A node counts as the owner of its own id.
        - ``timeout_s``: maximum number of seconds to wait for the reply.
        - ``on_progress``: called with each :class:`ProgressReply` that precedes the reply; None to ignore them.

        Raises :class:`NoWorker` if no worker is running, or if the reply does not arrive in time.
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
        """Send a reply to a request. Workers call this method.

        ``reply`` may be an interim :class:`ProgressReply`, which is followed by further replies.
        """
        await send_reply(self._redis, request.id, reply)


async def send_reply(redis: RedisClient, request_id: str, reply: msgspec.Struct) -> None:
    """Send ``reply`` to the process that sent the request with the id ``request_id``."""
    key = keys.reply(request_id)
    await redis.call_many([("RPUSH", key, msgspec.msgpack.encode(reply)), ("EXPIRE", key, _REPLY_TTL_S)])
