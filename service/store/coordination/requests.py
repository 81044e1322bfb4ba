"""Requests of bots and the console to the fleet: they go to one worker's inbox and get one answer.

Only workers reach publishers; whoever else needs something of a publisher asks here. An inbox is one
stream, in the slot of its node, never longer than it needs to be.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from hashlib import sha1
from typing import Any, Final, Literal, TypeVar

import msgspec

from service.corona.messages import ChannelAdded, encode
from service.corona.poll_explanation import PollExplanation
from service.discovery.partial.strategy_choice import DirectoryChoice
from service.errors import Fault, NoWorker, from_fault
from service.feeds.opml import OpmlDocument
from service.feeds.urls import channel_id, host_of
from service.model import Channel, ChannelId, Entry, FeedLink, NodeId, PollResult
from service.overlay.id_space import BITS, to_hex
from service.store.client import keys
from service.store.client.connection import MAX_BLOCK_S, BatchingClient, Command, RedisClient
from service.store.coordination.leases import Ring
from service.store.coordination.request_budgets import BlockedHosts

_LENGTH = 10_000
_KEPT_S = 3600

MessageKind = Literal["peer", "ask", "push", "share"]

_KINDS: dict[bytes, MessageKind] = {b"ask": "ask", b"push": "push", b"share": "share"}


class InboxMessage(msgspec.Struct, frozen=True):
    """One message: ``peer`` between nodes (corona's protocol), ``ask`` from a bot or the console.

    ``push`` says that a hub sent something for a channel (its id is the payload), and wants no answer; ``share`` is
    between nodes, of the directories that they keep in memory.
    """

    kind: MessageKind
    sender: str
    payload: bytes


class NodeInboxes:
    """Send to any node's inbox; read one's own. Soft state: what is lost is sent again by the protocol."""

    def __init__(self, redis: RedisClient, together: BatchingClient) -> None:
        """Use this link to Redis: to wait for letters alone, for all else together with others."""
        self._redis = redis
        self._batching = together

    async def send(self, letters: list[tuple[NodeId, InboxMessage]]) -> None:
        """Put letters into inboxes, in order, in one round trip."""
        commands: list[Command] = []
        for to, letter in letters:
            fields = ("k", letter.kind, "f", letter.sender, "m", letter.payload)
            commands.append(("XADD", keys.inbox(to), "MAXLEN", "~", _LENGTH, "*", *fields))
        # Letters may follow a node into its grave, where nobody reads them.
        commands += [("EXPIRE", keys.inbox(to), _KEPT_S) for to in dict.fromkeys(to for to, _ in letters)]
        await self._batching.call_many(commands)

    async def read(self, node: NodeId, after: str) -> tuple[list[InboxMessage], str]:
        """Wait for letters after this place ("0" from the start); return them and the next place.

        What was returned is not given again: a letter that its reader does not live to answer is lost.
        """
        block_ms = int(MAX_BLOCK_S * 1000)
        found = await self._redis.call_blocking(
            "XREAD", "COUNT", 500, "BLOCK", block_ms, "STREAMS", keys.inbox(node), after
        )
        letters = []
        for _, entries in found or ():
            for entry, fields in entries:
                after = entry.decode()
                letters.append(InboxMessage(_KINDS.get(fields[b"k"], "peer"), fields[b"f"].decode(), fields[b"m"]))
        return letters, after

    async def trim(self, node: NodeId, place: str) -> None:
        """Keep no longer what was read up to this place."""
        await self._batching.call("XTRIM", keys.inbox(node), "MINID", place)

    async def delete(self, nodes: tuple[NodeId, ...]) -> None:
        """Delete the inboxes of nodes that are gone."""
        if nodes:
            await self._batching.call_many([("UNLINK", keys.inbox(node)) for node in nodes])


_ANSWER_KEPT_S = 60
_WITHIN_S = 9.5
_SHOWN_WITHIN_S = 7.0
_LOOKUP_WITHIN_S = 0.5
"""A worker that takes longer is slower than the matrices."""


class ProbeRequest(msgspec.Struct, frozen=True, tag=True):
    """Look at this canonical URL; if it is a feed, make it a channel (or wake its channel up).

    ``as_page``: make a page of it, whatever it names; then the URL may carry a selector (``feeds.urls.page_url``).
    Not to ``keep`` it: only look, and say what channel it would be. ``afresh``: of a page, look at this very URL even
    if its channel has moved; unless it is polled, it goes on from what is there now.
    """

    url: str
    as_page: bool = False
    keep: bool = True
    afresh: bool = False


class MoveRequest(msgspec.Struct, frozen=True, tag=True):
    """Have this channel's subscribers told that it is watched at another canonical URL, and move there."""

    channel: ChannelId
    url: str


class PollRequest(msgspec.Struct, frozen=True, tag=True):
    """Poll this channel at once; ``told``: and tell each step meanwhile."""

    channel: ChannelId
    report_progress: bool = False


class ExplanationRequest(msgspec.Struct, frozen=True, tag=True):
    """Tell why this channel is polled as it is."""

    channel: ChannelId


class OutlineRequest(msgspec.Struct, frozen=True, tag=True):
    """Fetch the list of feeds (OPML) at this canonical URL."""

    url: str


class LookupRequest(msgspec.Struct, frozen=True, tag=True):
    """Name channels that have all these AV-pairs, from the directories in memory (partial lookup)."""

    pairs: tuple[str, ...]
    limit: int


class DirectoriesRequest(msgspec.Struct, frozen=True, tag=True):
    """Tell of the directories in memory that you coordinate."""


class ShareRequest(msgspec.Struct, frozen=True, tag=True):
    """Name what you keep in memory of the directory of this AV-pair."""

    pair: str


ContentSource = Literal["cache", "near", "owner", "store", "publisher"]
"""Where a content was found: at the worker that was asked, near it, at the channel's owner, in the store, or with
nobody but the publisher."""


class ContentRequest(msgspec.Struct, frozen=True, tag=True):
    """Show this channel's content: its latest entries, from the nearest copy."""

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
    """A request with where to answer. After ``until_s`` (on Redis's clock, Unix s) nobody waits for it any more."""

    id: str
    body: RequestBody
    until_s: float


class ProbeReply(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """What a probe found: a channel, or several feeds to choose from.

    ``latest`` is newest first; ``discovered`` says that the URL was a page which named the feed;
    ``page`` that it is one which names none: it could be watched itself.
    """

    channel: Channel | None = None
    latest: tuple[Entry, ...] = ()
    choices: tuple[FeedLink, ...] = ()
    discovered: bool = False
    page: bool = False


class ProgressReply(msgspec.Struct, frozen=True, tag=True):
    """What has just been done, in words, so many seconds after the beginning; the answer proper is yet to come."""

    text: str
    elapsed_s: float


class MoveReply(msgspec.Struct, frozen=True, tag=True):
    """It is decided that a channel moves; whoever dies, it is carried out."""


class PollReply(msgspec.Struct, frozen=True, tag=True):
    """How the poll ended."""

    result: PollResult


class ExplanationReply(msgspec.Struct, frozen=True, tag=True):
    """Why a channel is polled as it is."""

    reason: PollExplanation


class OutlineReply(msgspec.Struct, frozen=True, tag=True):
    """What a list says."""

    outline: OpmlDocument


class LookupReply(msgspec.Struct, frozen=True, tag=True):
    """Channels that were found in memory, at most as many as were wanted: the matrices may have more."""

    channels: tuple[ChannelId, ...]


class DirectoriesReply(msgspec.Struct, frozen=True, tag=True):
    """The directories that one worker coordinates."""

    directories: tuple[DirectoryChoice, ...]


class ShareReply(msgspec.Struct, frozen=True, tag=True):
    """One worker's share of a directory: channels, in no order."""

    channels: tuple[ChannelId, ...]


class ContentReply(msgspec.Struct, frozen=True, tag=True):
    """A channel's latest entries (newest first) at a version, and where they were found.

    ``worker`` is the name of the other worker that had them, so many ``hops`` away, if it is known.
    """

    version: int
    latest: tuple[Entry, ...]
    source: ContentSource
    hops: int = 0
    worker: str = ""


class ErrorReply(msgspec.Struct, frozen=True, tag=True):
    """The error that the worker met."""

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


_ANSWER: Final[Any] = WorkerReply
_A = TypeVar("_A")
_B = TypeVar("_B")


async def next_reply(redis: RedisClient, ident: str, until_s: float, among: type[_A]) -> _A | None:
    """Wait for the next answer to the request of this id until ``until_s`` (monotonic); None if there was none.

    Raises the error that whoever was asked has met.
    """
    while (left_s := until_s - time.monotonic()) > 0:
        found = await redis.call_blocking("BLPOP", keys.reply(ident), min(left_s, MAX_BLOCK_S))
        if found:
            answer = msgspec.msgpack.decode(found[1], type=among)
            if isinstance(answer, ErrorReply):
                raise from_fault(answer.fault)
            return answer
    return None


def expect_reply(answer: object, kind: type[_B]) -> _B:
    """Return an answer of this kind. Raises :class:`NoWorker` if it is another."""
    if isinstance(answer, kind):
        return answer
    raise NoWorker(f"{type(answer).__name__} is no answer to that request: the fleet's versions differ.")


class WorkerRequests:
    """Ask the worker that owns the matter, and wait for the answer.

    Each method raises what the worker met, or :class:`NoWorker`.
    """

    def __init__(self, redis: RedisClient, inboxes: NodeInboxes, ring: Ring, blocks: BlockedHosts) -> None:
        """Use this link to Redis."""
        self._blocks = blocks
        self._redis = redis
        self._inboxes = inboxes
        self._ring = ring

    async def probe(self, url: str, *, as_page: bool = False, keep: bool = True, afresh: bool = False) -> ProbeReply:
        """Have a canonical URL looked at. Raises :class:`HostBlocked` as well."""
        await self._blocks.check(host_of(url))
        return await self._ask(channel_id(url), ProbeRequest(url, as_page, keep, afresh), ProbeReply)

    async def move(self, cid: ChannelId, url: str) -> None:
        """Have a channel move to another URL, which somebody has looked at. Can be repeated."""
        await self._ask(cid, MoveRequest(cid, url), MoveReply)

    async def poll_now(
        self, cid: ChannelId, *, told: Callable[[ProgressReply], Awaitable[None]] | None = None
    ) -> PollResult:
        """Have a channel polled at once; each step is ``told`` meanwhile."""
        return (await self._ask(cid, PollRequest(cid, told is not None), PollReply, told=told)).result

    async def explain(self, cid: ChannelId, timeout_s: float = _WITHIN_S) -> PollExplanation:
        """Return why a channel is polled as it is."""
        return (await self._ask(cid, ExplanationRequest(cid), ExplanationReply, timeout_s)).reason

    async def content(self, cid: ChannelId, timeout_s: float = _SHOWN_WITHIN_S) -> ContentReply:
        """Have a channel's content located; without a worker, ask the store."""
        return await self._ask(cid, ContentRequest(cid), ContentReply, timeout_s)

    async def outline(self, url: str) -> OpmlDocument:
        """Return what the list of feeds at a canonical URL says."""
        return (await self._ask(channel_id(url), OutlineRequest(url), OutlineReply)).outline

    async def lookup(
        self, pairs: Collection[str], limit: int, timeout_s: float = _LOOKUP_WITHIN_S
    ) -> tuple[ChannelId, ...]:
        """Return channels that have all these AV-pairs, of those that any one worker knows; maybe none.

        If they are fewer than ``limit``, or there is no worker, ask the matrices.
        """
        anyone = to_hex(secrets.randbits(BITS))
        return (await self._ask(anyone, LookupRequest(tuple(pairs), limit), LookupReply, timeout_s)).channels

    async def directories(self) -> list[DirectoryChoice]:
        """Return the directories in workers' memory, by pair; those of a worker that does not answer are absent."""
        nodes = [node.id for node in await self._ring.nodes()]
        found = await asyncio.gather(*(self._or_none(node, DirectoriesRequest(), DirectoriesReply) for node in nodes))
        return sorted((each for own in found if own for each in own.directories), key=lambda each: each.pair)

    async def shares(self, pair: str) -> list[tuple[ChannelId, ...] | None]:
        """Return what each worker keeps of a directory, beginning with its coordinator; None of who does not answer."""
        ring = await self._ring.look()
        nodes = sorted(ring.ids)
        first = ring.owner(sha1(pair.encode(), usedforsecurity=False).hexdigest())
        begin = nodes.index(first) if first in nodes else 0
        in_turn = nodes[begin:] + nodes[:begin]
        found = await asyncio.gather(*(self._or_none(node, ShareRequest(pair), ShareReply) for node in in_turn))
        return [share.channels if share else None for share in found]

    async def announce_channel(self, cid: ChannelId) -> None:
        """Tell the owner at once that somebody wants this channel; if this is lost, its next walk finds out."""
        await self._tell_owner(cid, InboxMessage("peer", "", encode("", ChannelAdded(cid))))

    async def announce_push(self, cid: ChannelId) -> None:
        """Tell the owner that a hub's push waits for it; if this is lost, a poll finds what is new."""
        await self._tell_owner(cid, InboxMessage("push", "", cid.encode()))

    async def _tell_owner(self, cid: ChannelId, letter: InboxMessage) -> None:
        owner = (await self._ring.look()).owner(cid)
        if owner is not None:
            await self._inboxes.send([(owner, letter)])

    async def _or_none(self, node: NodeId, body: RequestBody, kind: type[_A]) -> _A | None:
        with suppress(NoWorker):
            return await self._ask(node, body, kind)
        return None

    async def _ask(
        self,
        cid: ChannelId,
        body: RequestBody,
        kind: type[_A],
        timeout_s: float = _WITHIN_S,
        told: Callable[[ProgressReply], Awaitable[None]] | None = None,
    ) -> _A:
        now_s, ring = await self._ring.time_and_view()
        owner = ring.owner(cid)
        if owner is None:
            raise NoWorker("No worker is running, so nothing can be looked at. Try again in a moment.")
        ask = WorkerRequest(secrets.token_urlsafe(12), body, now_s + timeout_s)
        await self._inboxes.send([(owner, InboxMessage("ask", "", msgspec.msgpack.encode(ask)))])
        until_s = time.monotonic() + timeout_s
        while (answer := await next_reply(self._redis, ask.id, until_s, _ANSWER)) is not None:
            if not isinstance(answer, ProgressReply):
                return expect_reply(answer, kind)
            if told is not None:
                await told(answer)
        raise NoWorker(f"No worker answered within {timeout_s:.0f} s. Try again in a moment.")

    async def reply(self, ask: WorkerRequest, answer: WorkerReply) -> None:
        """Answer a request, or tell a step on the way to the answer (workers)."""
        await send_reply(self._redis, ask.id, answer)


async def send_reply(redis: RedisClient, ident: str, answer: msgspec.Struct) -> None:
    """Answer the request of this id."""
    key = keys.reply(ident)
    await redis.call_many([("RPUSH", key, msgspec.msgpack.encode(answer)), ("EXPIRE", key, _ANSWER_KEPT_S)])
