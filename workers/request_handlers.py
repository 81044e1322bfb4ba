"""The requests of bots and the console to the fleet, each with its handler: look at this URL, poll this channel now."""

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
from service.location.content_cache import unpack_entries
from service.model import Channel, Entry, Validators
from service.net.peer_client import peer_of
from service.store import Store
from service.store.coordination.requests import (
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
from workers.url_resolver import UrlResolver, no_looks

_WITHIN_S = 9.0
_FETCHED_WITHIN_S = 7.0
_SHOWN_WITHIN_S = 5.0
_MOST_FEEDS = 1_000
"""Of a list: an answer is to stay small."""
_NO_CHANNEL = "There is no such channel."

_T = TypeVar("_T")

log = structlog.get_logger(__name__)


class WorkerRequestHandlers:
    """WorkerRequestHandlers requests on behalf of the node that they reached."""

    def __init__(self, store: Store, poller: Poller, lanes: ConcurrencyLanes) -> None:
        """Look at what nobody polls yet in ``lanes`` for that alone."""
        self._store = store
        self._poller = poller
        self._lanes = lanes
        self._lists = OpmlReader()
        self._looks = no_looks()
        self._handlers: dict[type, Callable[[Node, WorkerRequest, Any], Awaitable[WorkerReply]]] = {
            ProbeRequest: self._probe,
            MoveRequest: self._move,
            PollRequest: self._poll_now,
            OutlineRequest: self._read_outline,
            LookupRequest: self._look_up,
            DirectoriesRequest: self._list_directories,
            ShareRequest: self._name_share,
            ContentRequest: self._show,
            ExplanationRequest: self._why,
        }

    async def answer(self, node: Node, letter: InboxMessage) -> None:
        """Answer one letter, unless nobody waits any more. What goes wrong is part of the answer."""
        try:
            ask = msgspec.msgpack.decode(letter.payload, type=WorkerRequest)
        except msgspec.MsgspecError as error:
            log.warning("a request of another version", error=str(error))
            return
        if ask.until_s < node.polling.fleet_s():
            return
        try:
            async with asyncio.timeout(_WITHIN_S):
                answer = await self._handlers[type(ask.body)](node, ask, ask.body)
        except TimeoutError:
            answer = ErrorReply(to_fault(NoWorker(f"The worker was not done within {_WITHIN_S:g} s. Try again later.")))
        except CoronetError as error:
            answer = ErrorReply(to_fault(error))
        await self._store.worker_requests.reply(ask, answer)

    async def _probe(self, node: Node, _: WorkerRequest, probe: ProbeRequest) -> WorkerReply:
        return await UrlResolver(self._store, self._poller, self._lanes, node, self._looks).probe(probe)

    async def _move(self, node: Node, _: WorkerRequest, move: MoveRequest) -> WorkerReply:
        if not await node.owning.move(move.channel, move.url):
            raise NotSubscribed("There is no such channel, or it has moved already.")
        return MoveReply()

    async def _poll_now(self, node: Node, ask: WorkerRequest, wanted: PollRequest) -> WorkerReply:
        polling = node.polling.poll_now(wanted.channel)
        result = await (self._told(ask, polling) if wanted.report_progress else polling)
        if result is None:
            raise NotSubscribed(_NO_CHANNEL)
        return PollReply(result)

    async def _told(self, ask: WorkerRequest, polling: Awaitable[_T]) -> _T:
        """Return what comes of it, and tell its steps meanwhile, in order."""
        began_s, steps = time.monotonic(), asyncio.Queue[ProgressReply | None]()

        async def telling() -> None:
            while (step := await steps.get()) is not None:
                await self._store.worker_requests.reply(ask, step)

        teller = asyncio.create_task(telling())
        try:
            with trace_listener(lambda words: steps.put_nowait(ProgressReply(words, time.monotonic() - began_s))):
                return await polling
        finally:
            steps.put_nowait(None)
            await teller

    async def _read_outline(self, _node: Node, _: WorkerRequest, wanted: OutlineRequest) -> WorkerReply:
        """Fetch and read a list of feeds. Raises what its reader is to be told of."""
        channel = Channel(channel_id(wanted.url), wanted.url)

        async def load() -> bytes:
            async with self._lanes.hold_slot(channel, await self._poller.address_group(channel)):
                fetched = await self._poller.fetch_unknown(channel, _FETCHED_WITHIN_S)
            return fetched.body or b""

        outline = await self._lists.read(load)
        if len(outline.feeds) > _MOST_FEEDS:
            problem = f"Only the first {_MOST_FEEDS:,} feeds are read."
            outline = OpmlDocument(outline.feeds[:_MOST_FEEDS], (problem, *outline.problems))
        return OutlineReply(outline)

    async def _look_up(self, node: Node, _: WorkerRequest, wanted: LookupRequest) -> WorkerReply:
        return LookupReply(tuple(node.directories.find(wanted.pairs, wanted.limit)))

    async def _list_directories(self, node: Node, _: WorkerRequest, _wanted: DirectoriesRequest) -> WorkerReply:
        return DirectoriesReply(node.directories.chosen)

    async def _name_share(self, node: Node, _: WorkerRequest, wanted: ShareRequest) -> WorkerReply:
        return ShareReply(node.directories.share(wanted.pair))

    async def _show(self, node: Node, _: WorkerRequest, wanted: ContentRequest) -> WorkerReply:
        """Show a channel's latest entries, and where its content came from."""
        (state,) = await self._store.channels.states([wanted.channel])
        if state is None:
            raise NotSubscribed(_NO_CHANNEL)
        located = await node.contents.locate(wanted.channel, state.channel.version, state.digest)
        latest = unpack_entries(located.content.latest)
        if located.source == "publisher":
            latest = await self._fetched(state.channel)
        elif not latest:
            latest = await self._store.channels.content_entries(wanted.channel)
        workers = ((peer_of(info), info.name) for info in node.ring.nodes)
        name = next((name for peer, name in workers if peer and peer.id == located.worker), "")
        return ContentReply(located.version, latest, located.source, located.hops, name)

    async def _fetched(self, channel: Channel) -> tuple[Entry, ...]:
        with contextlib.suppress(PublisherError, UserError):
            async with self._lanes.hold_slot(channel, await self._poller.address_group(channel)):
                fetched = await self._poller.fetch_unknown(channel, _SHOWN_WITHIN_S)
                job = DetectChanges((document_of(fetched),), b"", channel.url, channel.kind, time.time())
                watch = PollState(channel, Validators(), 0, address_group=public_address_group(fetched.address))
                return (await self._lanes.detect_changes(job, watch, _SHOWN_WITHIN_S)).latest
        return ()

    async def _why(self, node: Node, _: WorkerRequest, wanted: ExplanationRequest) -> WorkerReply:
        reason = node.why(wanted.channel)
        if reason is None:
            raise AssignmentPending("It is not settled yet how this is polled.")
        return ExplanationReply(reason)
