"""One worker of :mod:`tests.live.peers`: ``python -m tests.live.peer_worker FILE``.

It reaches other workers through the proxies of its group, and records which contents it looks up and has. On SIGUSR1 it
looks up contents that do not exist; on SIGUSR2 it begins to corrupt contents that it sends. Base contents that are
found nowhere are fetched from the publisher, with a header that marks the request.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from service.host_process import serve_programs
from service.location.content_cache import DIGEST_BYTES, Content, ContentCache, Digest
from service.model import ChannelId, NodeId
from service.net.peer_client import Peer, PeerClient
from service.process_memory import configure_memory
from service.settings import Settings, load
from service.store.channels.channels import Channels
from workers.main import WorkerProgram
from workers.peers.baseline_lookup import BaselineLookup, LocatedContent
from workers.peers.peer_content_search import FOUND, PeerContentSearch
from workers.peers.peer_endpoint import PeerEndpoint

LOOKUPS = 60
WHY = "Coronet-Why"
"""A header of those requests to a publisher that fetch a base."""


class WorkerPlan(msgspec.Struct):
    """The plan of one worker: the group's proxies by the worker's port, and its journal.

    ``fetches`` means that the store returns no base contents and that there are no peers, so that all are fetched.
    """

    proxies: dict[int, int]
    journal: str
    fetches: bool


class Event(msgspec.Struct, omit_defaults=True):
    """An event in a worker's journal; ``at_s`` is the machine's monotonic clock, which all workers share.

    Kinds: ``is`` (the worker's id), ``has`` and ``lacks`` (a content), ``located`` (with source, hops and worker),
    ``failed`` (with the durations of the search and of the owner's part), ``done``.
    """

    kind: str
    at_s: float
    digest: str = ""
    worker: NodeId = ""
    source: str = ""
    hops: int = 0
    took_s: float = 0.0
    owner_s: float = 0.0
    size_bytes: int = 0


class Journal:
    """Writes events to a file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, event: Event) -> None:
        os.write(self._file, msgspec.json.encode(event) + b"\n")


def use_proxies(told: WorkerPlan) -> None:
    """Connect to other workers through the proxies of this group."""
    request = PeerClient.request

    async def delayed(self: PeerClient, peer: Peer, verb: str, body: bytes, **bounds: Any) -> bytes:
        port = told.proxies[int(peer.url.rpartition(":")[2])]
        return await request(self, Peer(peer.id, f"http://127.0.0.1:{port}"), verb, body, **bounds)

    PeerClient.request = delayed  # type: ignore[method-assign]  # wrapped


def record_contents(journal: Journal) -> None:
    """Record the worker's id, and when contents are added to its cache and removed."""
    put, drop, begun = ContentCache.put, ContentCache.remove, PeerEndpoint.__init__

    def noted_begin(self: PeerEndpoint, *given: Any) -> None:
        begun(self, *given)
        journal.write(Event("is", time.monotonic(), worker=self._worker_id))

    PeerEndpoint.__init__ = noted_begin  # type: ignore[assignment, method-assign]  # wrapped

    def noted_put(self: ContentCache, cid: ChannelId, digest: Digest, content: Content, now_s: float) -> None:
        put(self, cid, digest, content, now_s)
        journal.write(Event("has", time.monotonic(), digest.hex()))

    def noted_drop(self: ContentCache, cid: ChannelId) -> None:
        if (kept := self._contents.get(cid)) is not None:
            journal.write(Event("lacks", time.monotonic(), kept.digest.hex()))
        drop(self, cid)

    ContentCache.put, ContentCache.remove = noted_put, noted_drop  # type: ignore[method-assign]  # wrapped


def record_lookups(journal: Journal) -> None:
    """Record which contents are looked up at other workers, when, and where they are found."""
    locate = BaselineLookup.locate

    async def noted(self: BaselineLookup, channel_id: ChannelId, version: int, digest: Digest) -> LocatedContent:
        began_s = time.monotonic()
        found = await locate(self, channel_id, version, digest)
        if found.source != "cache":
            took_s, size_bytes = time.monotonic() - began_s, found.content.size_bytes
            journal.write(
                Event(
                    "located",
                    began_s,
                    digest.hex(),
                    found.worker,
                    found.source,
                    found.hops,
                    took_s,
                    size_bytes=size_bytes,
                )
            )
        return found

    BaselineLookup.locate = noted  # type: ignore[method-assign]  # wrapped


def fetch_missing_contents() -> None:
    """Fetch each base content that is not found elsewhere from its publisher."""
    located = BaselineLookup._locate

    async def fetched(self: BaselineLookup, channel_id: ChannelId, version: int, digest: Digest) -> LocatedContent:
        found = await located(self, channel_id, version, digest)
        if found.source == "publisher":
            (state,) = await self._channels.states([channel_id])
            if state is not None:
                async with aiohttp.ClientSession() as session, session.get(state.channel.url, headers={WHY: "base"}):
                    pass
        return found

    BaselineLookup._locate = fetched  # type: ignore[method-assign]  # wrapped


def disable_store() -> None:
    """Make the store return no contents."""

    async def nothing(self: Channels, cid: ChannelId) -> tuple[int, Digest, Content]:
        (state,) = await self.states([cid])
        return state.channel.version if state else 0, b"", Content(b"", b"")

    Channels.content = nothing  # type: ignore[method-assign]  # wrapped


class FailingLookups:
    """Looks up contents that do not exist, and measures the time in addition to the request to the owner."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._finder: PeerContentSearch | None = None
        self._owner_s = 0.0
        made, ask = PeerContentSearch.__init__, PeerContentSearch._request

        def remembered(finder: PeerContentSearch, *arguments: Any, **more: Any) -> None:
            made(finder, *arguments, **more)
            self._finder = finder

        async def timed(finder: PeerContentSearch, *arguments: Any) -> Any:
            began_s = time.monotonic()
            try:
                return await ask(finder, *arguments)
            finally:
                self._owner_s = time.monotonic() - began_s  # the last one asked is the owner

        PeerContentSearch.__init__, PeerContentSearch._request = remembered, timed  # type: ignore[method-assign, assignment]  # wrapped

    async def fail(self) -> None:
        """Look up contents that do not exist, one after the other."""
        finder = self._finder
        assert finder is not None
        for _ in range(LOOKUPS):
            cid = secrets.token_hex(20)
            if finder._get_owner(cid) is None:
                continue
            began_s = time.monotonic()
            await finder.find(cid, 1, secrets.token_bytes(DIGEST_BYTES))
            took_s = time.monotonic() - began_s
            self._journal.write(Event("failed", began_s, took_s=took_s, owner_s=self._owner_s))
        self._journal.write(Event("done", time.monotonic()))


class CorruptedContents:
    """Corrupts one bit of every content that the worker sends, once it is started."""

    def __init__(self) -> None:
        self.begun = False
        lies, found = self, PeerEndpoint._on_find

        def answered(self: PeerEndpoint, sender: NodeId, body: bytes) -> bytes:
            answer = found(self, sender, body)
            spoilt = lies.begun and answer.startswith(FOUND)
            return answer[:-1] + bytes((answer[-1] ^ 1,)) if spoilt else answer

        PeerEndpoint._on_find = answered  # type: ignore[method-assign]  # wrapped

    def begin(self) -> None:
        self.begun = True


async def run_recording_worker(settings: Settings, told: WorkerPlan) -> None:
    """Run the worker until SIGTERM."""
    journal = Journal(told.journal)
    use_proxies(told)
    record_contents(journal)
    fetch_missing_contents()
    if told.fetches:
        disable_store()
    record_lookups(journal)
    lookups, lies = FailingLookups(journal), CorruptedContents()
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    working = asyncio.ensure_future(serve_programs(settings, [WorkerProgram]))
    loop.add_signal_handler(signal.SIGUSR1, lambda: tasks.add(asyncio.create_task(lookups.fail())))
    loop.add_signal_handler(signal.SIGUSR2, lies.begin)
    loop.add_signal_handler(signal.SIGTERM, working.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await working


def main() -> None:
    """Run as a program."""
    told = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=WorkerPlan)
    configure_memory()
    asyncio.run(run_recording_worker(load(), told))


if __name__ == "__main__":
    main()
