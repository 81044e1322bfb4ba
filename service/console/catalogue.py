"""Channels as the console shows them, to people and to programs: found, paged, described."""

import re
from typing import Literal

import msgspec
from aiohttp import web

from service.corona.reasons import Reason
from service.errors import NotSettled, NoWorker, UserError
from service.feeds.urls import selector_of
from service.model import Channel, ChannelId, Entry, NodeInfo, PollResult, Wishes
from service.store import Store
from service.store.requests import Source
from service.store.state import ChannelState

PAGE = 50
_SCANNED_AT_ONCE = 250
_SCANNED_AT_MOST = 2_000
_ID = re.compile(r"[0-9a-f]{40}")
_POLLS_SHOWN = 20
_ENTRIES_SHOWN = 10
_WHY_WITHIN_S = 1.0

State = Literal["polled", "failing", "idle"]
"""``failing``: the last poll failed. ``idle``: neither subscribed to nor listed, so nobody polls it."""


class ChannelView(msgspec.Struct, frozen=True):
    """A channel and how it is doing. Times are Unix seconds.

    ``selector`` (CSS) names the part of a page that is watched, which is in the ``url`` too. ``condition`` is
    what subscribers were told last of the channel itself; ``moved_to`` the channel that took over.
    """

    id: ChannelId
    url: str
    title: str
    link: str
    kind: Literal["feed", "page"]
    selector: str
    version: int
    listed: bool
    private: bool
    created_s: float
    subscribers: int
    state: State
    condition: Literal["", "dead", "quarantined"]
    moved_to: ChannelId
    failing_since_s: float | None


class ChannelPage(msgspec.Struct, frozen=True):
    """Some channels by id; ``next`` is the cursor of what follows, "" at the end."""

    items: tuple[ChannelView, ...]
    next: str


class ChannelDetail(msgspec.Struct, frozen=True):
    """A channel with its place on the ring, how its last polls ended, and its latest entries (newest first).

    ``why`` it is polled as it is, and by whom, is its owner's word; null if that does not answer. ``wishes`` is
    how often its publisher wants to be asked; for ``paused_s`` more seconds nobody may.
    """

    channel: ChannelView
    owner: NodeInfo | None
    polling_set: tuple[NodeInfo, ...]
    why: Reason | None
    polls: tuple[PollResult, ...]
    latest: tuple[Entry, ...]
    wishes: Wishes
    paused_s: float


class ContentView(msgspec.Struct, frozen=True):
    """A channel's latest entries (newest first) at a version, and where they were found.

    ``cache``: at the worker that was asked; ``near``: at another one, so many ``hops`` away along filters; ``owner``:
    at the channel's owner; ``store``: nowhere else; ``publisher``: not even there, so that it was fetched. ``worker``
    is the name of that other one, if it is known.
    """

    version: int
    latest: tuple[Entry, ...]
    source: Source
    hops: int
    worker: str


async def existing(store: Store, text: str) -> Channel:
    """Return the channel whose id stands in a path. Raises ``HTTPNotFound``."""
    channel = await store.channels.get(_checked_id(text))
    if channel is None:
        raise _no_such_channel()
    return channel


async def find(store: Store, query: str, cursor: str, count: int = PAGE) -> ChannelPage:
    """Return the next channels whose title or URL holds ``query`` (any case; "" finds all).

    Looks at no more than ``_SCANNED_AT_MOST`` channels, so a page can be short and still have a next one.
    Raises :class:`UserError` for a cursor that is none of ours.
    """
    if cursor and not _ID.fullmatch(cursor):
        raise UserError("This cursor is not one the console gave out. Start again without it.")
    wanted = query.casefold().strip()
    found: list[ChannelId] = []
    scanned = 0
    while True:
        channels, cursor = await store.channels.page(cursor, _SCANNED_AT_ONCE if wanted else count)
        for channel in channels:
            if wanted in channel.title.casefold() or wanted in channel.url.casefold():
                found.append(channel.id)
            if len(found) == count:
                more = cursor or channel.id != channels[-1].id
                return ChannelPage(await _views(store, found), channel.id if more else "")
        scanned += len(channels)
        if not cursor or scanned >= _SCANNED_AT_MOST:
            return ChannelPage(await _views(store, found), cursor)


async def detail(store: Store, text: str) -> ChannelDetail:
    """Return all about the channel whose id stands in a path. Raises ``HTTPNotFound``."""
    cid = _checked_id(text)
    ring = await store.ring.look()
    (state,) = await store.channels.states([cid])
    if state is None:
        raise _no_such_channel()
    view = _view(state, await store.subscriptions.count(cid))
    nodes = {node.id: node for node in ring.nodes}
    owner = ring.owner(cid)
    why = await _why(store, cid) if view.state != "idle" else None
    return ChannelDetail(
        channel=view,
        owner=nodes[owner] if owner else None,
        polling_set=tuple(nodes[turn.node] for turn in why.turns if turn.node in nodes) if why else (),
        why=why,
        polls=await store.channels.polls(cid, _POLLS_SHOWN),
        latest=await store.channels.latest(cid, _ENTRIES_SHOWN),
        wishes=state.wishes,
        paused_s=await store.hosts.paused_s(cid),
    )


async def content(store: Store, text: str) -> ContentView:
    """Return the content of the channel whose id stands in a path, from the nearest copy. Raises ``HTTPNotFound``."""
    channel = await existing(store, text)
    try:
        shown = await store.requests.show(channel.id)
    except NoWorker:
        return ContentView(channel.version, await store.channels.newest(channel.id), "store", 0, "")
    return ContentView(shown.version, shown.latest, shown.source, shown.hops, shown.worker)


async def _why(store: Store, cid: ChannelId) -> Reason | None:
    try:
        return await store.requests.why(cid, _WHY_WITHIN_S)
    except (NotSettled, NoWorker):
        return None


def _checked_id(text: str) -> ChannelId:
    if not _ID.fullmatch(text):
        raise _no_such_channel()
    return text


def _no_such_channel() -> web.HTTPNotFound:
    return web.HTTPNotFound(text="There is no such channel. It may have been removed.")


async def _views(store: Store, ids: list[ChannelId]) -> tuple[ChannelView, ...]:
    states = await store.channels.states(ids)
    counts = await store.subscriptions.counts(ids)
    return tuple(_view(state, count) for state, count in zip(states, counts, strict=True) if state is not None)


def _view(state: ChannelState, subscribers: int) -> ChannelView:
    channel = state.channel
    doing: State = "failing" if state.failing_since_s else "polled"
    return ChannelView(
        id=channel.id,
        url=channel.url,
        title=channel.title,
        link=channel.link,
        kind=channel.kind,
        selector=selector_of(channel.url),
        version=channel.version,
        listed=channel.listed,
        private=channel.private,
        created_s=channel.created_s,
        subscribers=subscribers,
        state=doing if subscribers or channel.listed else "idle",
        condition=channel.condition,
        moved_to=channel.moved_to,
        failing_since_s=state.failing_since_s,
    )
