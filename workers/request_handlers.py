"""Handlers of the requests that bots and the console send to workers, for example to probe a URL or poll a channel."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
import structlog

from service.errors import (
    AssignmentPending,
    CoronetError,
    NotSubscribed,
    NoWorker,
    PublisherError,
    UserError,
    to_fault,
)
from service.feeds.opml import OpmlDocument
from service.feeds.sandbox.opml_reader import OpmlReader
from service.feeds.sandbox.protocol import DetectChanges
from service.feeds.urls import channel_id
from service.location.content_cache import MAX_LATEST_ENTRIES, unpack_entries
from service.model import Channel, Entry, Validators
from service.net.peer_client import peer_of
from service.store import Store
from service.store.coordination.worker_requests import (
    ContentReply,
    ContentRequest,
    DirectoriesReply,
    DirectoriesRequest,
    ErrorReply,
    ExplanationReply,
    ExplanationRequest,
    InboxMessage,
    LookupReply,
    LookupRequest,
    MoveReply,
    MoveRequest,
    OutlineReply,
    OutlineRequest,
    PollReply,
    PollRequest,
    ProbeRequest,
    ProgressReply,
    ShareReply,
    ShareRequest,
    WorkerReply,
    WorkerRequest,
)
from workers.node import Node
from workers.polling.concurrency_limits import ConcurrencyLanes
from workers.polling.politeness import public_address_group
from workers.polling.poll_state import PollState
from workers.polling.poll_trace import trace_listener
from workers.polling.poller import Poller, document_of
from workers.url_resolver import UrlResolver, create_resolution_cache

_TIMEOUT_S = 9.0
_OUTLINE_FETCH_TIMEOUT_S = 7.0
_CONTENT_FETCH_TIMEOUT_S = 5.0
_MAX_FEEDS = 1_000
"""Feeds of one outline (OPML); it bounds the size of the reply."""
_NO_CHANNEL = "There is no such channel."

_T = TypeVar("_T")

log = structlog.get_logger(__name__)


class WorkerRequestHandlers:
    """Handles the requests of bots and the console on behalf of the node that received them."""

    def __init__(self, store: Store, poller: Poller, lanes: ConcurrencyLanes) -> None:
        """Create the handlers.

        ``lanes`` limit the number of new URLs that are fetched and parsed at the same time.
        """
        self._store = store
        self._poller = poller
        self._lanes = lanes
        self._opml_reader = OpmlReader()
        self._resolutions = create_resolution_cache()
        self._handlers: dict[type, Callable[[Node, WorkerRequest, Any], Awaitable[WorkerReply]]] = {
            ProbeRequest: self._probe,
            MoveRequest: self._move,
            PollRequest: self._poll_now,
            OutlineRequest: self._read_outline,
            LookupRequest: self._look_up,
            DirectoriesRequest: self._list_directories,
            ShareRequest: self._list_share,
            ContentRequest: self._show_content,
            ExplanationRequest: self._explain,
        }

    async def handle(self, node: Node, message: InboxMessage) -> None:
        """Handle a request and send the reply, unless the sender no longer waits for the reply.

        Errors are sent as replies.
        """
        try:
            request = msgspec.msgpack.decode(message.payload, type=WorkerRequest)
        except msgspec.MsgspecError as error:
            log.warning("request malformed, perhaps of another version", error=str(error))
            return
        if request.until_s < node.polling.fleet_s():
            return
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                reply = await self._handlers[type(request.body)](node, request, request.body)
        except TimeoutError:
            reply = ErrorReply(to_fault(NoWorker(f"The worker was not done within {_TIMEOUT_S:g} s. Try again later.")))
        except CoronetError as error:
            reply = ErrorReply(to_fault(error))
        await self._store.worker_requests.reply(request, reply)

    async def _probe(self, node: Node, _: WorkerRequest, probe: ProbeRequest) -> WorkerReply:
        resolver = UrlResolver(self._store, self._poller, self._lanes, node, self._resolutions)
        return await resolver.probe(probe)

    async def _move(self, node: Node, _: WorkerRequest, move: MoveRequest) -> WorkerReply:
        if not await node.owner.move(move.channel, move.url):
            raise NotSubscribed("There is no such channel, or it has moved already.")
        return MoveReply()

    async def _poll_now(self, node: Node, request: WorkerRequest, poll: PollRequest) -> WorkerReply:
        polling = node.polling.poll_now(poll.channel)
        result = await (self._report_progress(request, polling) if poll.report_progress else polling)
        if result is None:
            raise NotSubscribed(_NO_CHANNEL)
        return PollReply(result)

    async def _report_progress(self, request: WorkerRequest, work: Awaitable[_T]) -> _T:
        """Return the result of ``work``, and send the steps that it traces to the sender of the request."""
        began_s, steps = time.monotonic(), asyncio.Queue[ProgressReply | None]()

        async def send_steps() -> None:
            while (step := await steps.get()) is not None:
                await self._store.worker_requests.reply(request, step)

        sender = asyncio.create_task(send_steps())
        try:
            with trace_listener(lambda text: steps.put_nowait(ProgressReply(text, time.monotonic() - began_s))):
                return await work
        finally:
            steps.put_nowait(None)
            await sender

    async def _read_outline(self, _node: Node, _: WorkerRequest, outline_request: OutlineRequest) -> WorkerReply:
        """Return the feeds in the outline (OPML) at a URL, fetched and parsed now."""
        channel = Channel(channel_id(outline_request.url), outline_request.url)

        async def load() -> bytes:
            async with self._lanes.hold_slot(channel, await self._poller.address_group(channel)):
                fetched = await self._poller.fetch_unknown(channel, _OUTLINE_FETCH_TIMEOUT_S)
            return fetched.body or b""

        outline = await self._opml_reader.read(load)
        if len(outline.feeds) > _MAX_FEEDS:
            problem = f"Only the first {_MAX_FEEDS:,} feeds are read."
            outline = OpmlDocument(outline.feeds[:_MAX_FEEDS], (problem, *outline.problems))
        return OutlineReply(outline)

    async def _look_up(self, node: Node, _: WorkerRequest, lookup: LookupRequest) -> WorkerReply:
        found = node.directories.find(lookup.directory, lookup.pairs, lookup.limit)
        return LookupReply(node.info.id, found.names, found.examined)

    async def _list_directories(self, node: Node, _: WorkerRequest, _request: DirectoriesRequest) -> WorkerReply:
        return DirectoriesReply(node.directories.coordinated)

    async def _list_share(self, node: Node, _: WorkerRequest, share: ShareRequest) -> WorkerReply:
        return ShareReply(node.directories.share(share.pair))

    async def _show_content(self, node: Node, _: WorkerRequest, content: ContentRequest) -> WorkerReply:
        """Return a channel's latest entries, and where they were found (cache, other worker, store or publisher)."""
        (state,) = await self._store.channels.states([content.channel])
        if state is None:
            raise NotSubscribed(_NO_CHANNEL)
        located = await node.contents.locate(content.channel, state.channel.version, state.digest)
        latest = unpack_entries(located.content.latest)
        if located.source == "publisher":
            latest = await self._fetch_entries(state.channel)
        elif not latest:
            latest = await self._store.channels.latest(content.channel, MAX_LATEST_ENTRIES)
        workers = ((peer_of(info), info.name) for info in node.ring.nodes)
        name = next((name for peer, name in workers if peer and peer.id == located.worker), "")
        return ContentReply(located.version, latest, located.source, located.hops, name)

    async def _fetch_entries(self, channel: Channel) -> tuple[Entry, ...]:
        """Return the latest entries in the publisher's document; empty if it cannot be fetched or parsed."""
        with contextlib.suppress(PublisherError, UserError):
            async with self._lanes.hold_slot(channel, await self._poller.address_group(channel)):
                fetched = await self._poller.fetch_unknown(channel, _CONTENT_FETCH_TIMEOUT_S)
                job = DetectChanges((document_of(fetched),), b"", channel.url, channel.kind, time.time())
                state = PollState(channel, Validators(), 0, address_group=public_address_group(fetched.address))
                return (await self._lanes.detect_changes(job, state, _CONTENT_FETCH_TIMEOUT_S)).latest
        return ()

    async def _explain(self, node: Node, _: WorkerRequest, explanation: ExplanationRequest) -> WorkerReply:
        reason = node.explain_polling(explanation.channel)
        if reason is None:
            raise AssignmentPending("It is not settled yet how this is polled.")
        return ExplanationReply(reason)
