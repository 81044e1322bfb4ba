"""Dispatches the requests that bots and the console send to workers. Most requests are handled in this module."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable
from typing import TypeVar

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
from service.feeds import canonical_urls
from service.feeds.opml_writer import OpmlDocument
from service.feeds.sandbox.parser_client import OpmlParserClient
from service.location.content_cache import MAX_LATEST_ENTRIES, unpack_entries
from service.model import Channel, ChannelId, Entry
from service.net.credential_vault import CredentialVault
from service.net.peer_client import peer_of
from service.store import Store
from service.store.coordination.worker_inboxes import InboxMessage
from service.store.coordination.worker_requests import (
    ContentReply,
    ContentRequest,
    DirectoriesReply,
    DirectoriesRequest,
    ErrorReply,
    ExplanationReply,
    ExplanationRequest,
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
from workers.polling.poller import trace_listener
from workers.polling.publisher_requests import document_of
from workers.request_handlers.new_url_resolver import NewUrlResolver, create_resolution_cache
from workers.request_handlers.prober import Prober

_TIMEOUT_S = 9.0
_OUTLINE_FETCH_TIMEOUT_S = 7.0
_CONTENT_FETCH_TIMEOUT_S = 5.0
_NO_CHANNEL = "There is no such channel."

_T = TypeVar("_T")

log = structlog.get_logger(__name__)


class RequestDispatcher:
    """Dispatches the requests of bots and the console to handlers, on behalf of the node that received them."""

    def __init__(self, store: Store, prober: Prober, vault: CredentialVault) -> None:
        """Create the dispatcher; ``prober`` fetches new URLs, and ``vault`` opens the credentials in requests."""
        self._store = store
        self._vault = vault
        self._prober = prober
        self._opml_reader = OpmlParserClient()
        self._resolutions = create_resolution_cache()

    async def handle(self, node: Node, message: InboxMessage) -> None:
        """Handle the request in ``message`` for ``node``, and reply unless the sender no longer waits.

        If an error occurs, it is sent as the reply.
        """
        try:
            request = msgspec.msgpack.decode(message.payload, type=WorkerRequest)
        except msgspec.MsgspecError as error:
            log.warning("worker request rejected, malformed or of another version", error=str(error))
            return
        if request.until_s < node.clock.wall_s():
            return
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                reply = await self._dispatch(node, request)
        except TimeoutError:
            reply = ErrorReply(to_fault(NoWorker(f"The worker was not done within {_TIMEOUT_S:g} s. Try again later.")))
        except CoronetError as error:
            reply = ErrorReply(to_fault(error))
        await self._store.worker_requests.reply(request, reply)

    async def _dispatch(self, node: Node, request: WorkerRequest) -> WorkerReply:
        reply: WorkerReply
        match request.body:
            case ProbeRequest() as probe:
                credential = self._vault.open(probe.credential, probe.url) if probe.credential else None
                resolver = NewUrlResolver(self._store, self._prober, node, self._resolutions, credential)
                reply = await resolver.probe(probe)
            case MoveRequest(channel, url):
                reply = await _move(node, channel, url)
            case PollRequest() as poll:
                reply = await self._poll_now(node, request, poll)
            case OutlineRequest(url):
                reply = OutlineReply(await self._read_outline(url))
            case LookupRequest(directory, pairs, limit):
                found = node.directories.find(directory, pairs, limit)
                reply = LookupReply(node.info.id, found.names, found.examined)
            case DirectoriesRequest():
                reply = DirectoriesReply(node.directories.coordinated)
            case ShareRequest(pair):
                reply = ShareReply(node.directories.share(pair))
            case ContentRequest(channel):
                reply = await self._show_content(node, channel)
            case ExplanationRequest(channel):
                reply = _explain(node, channel)
        return reply

    async def _poll_now(self, node: Node, request: WorkerRequest, poll: PollRequest) -> WorkerReply:
        polling = node.polling.poll_now(poll.channel)
        result = await (self._report_progress(request, polling) if poll.report_progress else polling)
        if result is None:
            raise NotSubscribed(_NO_CHANNEL)
        return PollReply(result)

    async def _report_progress(self, request: WorkerRequest, work: Awaitable[_T]) -> _T:
        """Await ``work`` and return its result.

        Meanwhile, send each step that ``work`` traces to the sender of ``request``.
        """
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

    async def _read_outline(self, url: str) -> OpmlDocument:
        """Fetch and parse the outline (OPML) at ``url``; return its feeds."""
        channel = Channel(canonical_urls.channel_id(url), url)

        async def load() -> bytes:
            async with self._prober.hold_slot(channel):
                return (await self._prober.fetch(channel, _OUTLINE_FETCH_TIMEOUT_S)).body or b""

        return await self._opml_reader.read(load)

    async def _show_content(self, node: Node, channel_id: ChannelId) -> WorkerReply:
        """Return a channel's latest entries, and where they were found (cache, another worker, store or publisher)."""
        (state,) = await self._store.channels.states([channel_id])
        if state is None:
            raise NotSubscribed(_NO_CHANNEL)
        located = await node.contents.locate(channel_id, state.channel.version, state.digest)
        latest = unpack_entries(located.content.latest)
        if located.source == "publisher":
            latest = await self._fetch_entries(state.channel)
        elif not latest:
            latest = await self._store.channels.latest(channel_id, MAX_LATEST_ENTRIES)
        workers = ((peer_of(info), info.name) for info in node.ring.nodes)
        name = next((name for peer, name in workers if peer and peer.id == located.worker), "")
        return ContentReply(located.version, latest, located.source, located.hops, name)

    async def _fetch_entries(self, channel: Channel) -> tuple[Entry, ...]:
        """Return the latest entries in the publisher's document, or () if it cannot be fetched or parsed."""
        with contextlib.suppress(PublisherError, UserError):
            async with self._prober.hold_slot(channel):
                fetched = await self._prober.fetch(channel, _CONTENT_FETCH_TIMEOUT_S)
                found = await self._prober.detect_changes(
                    channel, (document_of(fetched),), b"", address=fetched.address, timeout_s=_CONTENT_FETCH_TIMEOUT_S
                )
                return found.latest
        return ()


async def _move(node: Node, channel_id: ChannelId, url: str) -> MoveReply:
    if not await node.owner.move(channel_id, url):
        raise NotSubscribed("There is no such channel, or it has moved already.")
    return MoveReply()


def _explain(node: Node, channel_id: ChannelId) -> ExplanationReply:
    reason = node.protocol.explain(channel_id, node.clock.wall_s())
    if reason is None:
        raise AssignmentPending("It is not settled yet how this is polled.")
    return ExplanationReply(reason)
