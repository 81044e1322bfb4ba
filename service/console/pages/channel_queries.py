"""Queries for channels, shared by the pages and the API: rows of lists, one channel in detail, and its content."""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from aiohttp import web

from service.console.channel_cache import State, doing, row_of
from service.console.rendering import STORE
from service.corona.poll_explanation import PollExplanation
from service.errors import AssignmentPending, NoWorker
from service.feeds.urls import host_of, selector_of
from service.feeds.websub import HubState, Status
from service.model import Channel, ChannelId, Entry, NodeInfo, PollingHints, PollResult, Validators
from service.net.sites import site_of
from service.store import Store
from service.store.channels.admin_settings import AdministeredChannel, PollRate
from service.store.coordination.fleet_policy import BoundsRevision
from service.store.coordination.requests import ContentSource

_ID = re.compile(r"[0-9a-f]{40}")
_POLLS_SHOWN = 20
_ENTRIES_SHOWN = 10
_WHY_WITHIN_S = 1.0


class ChannelView(msgspec.Struct, frozen=True):
    """A channel and how it is doing. Times are Unix seconds.

    ``selector`` (CSS) names the part of a page that is watched, which is in the ``url`` too. ``condition`` is
    what subscribers were told last of the channel itself; ``moved_to`` the channel that took over. Admins file it
    under ``tags``, and may want nobody to poll it before ``paused_until_s`` (0 if they do not), or its host, or the
    domain ``blocked_by``, to be asked for nothing ("" if they do not).
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
    tags: tuple[str, ...]
    paused_until_s: float
    blocked_by: str


class ChannelPage(msgspec.Struct, frozen=True):
    """Some of all (``total``) channels that were looked for; ``next`` is the cursor of what follows, "" at the end."""

    items: tuple[ChannelView, ...]
    next: str
    total: int


class HubView(msgspec.Struct, frozen=True):
    """A channel's subscription at the hub that its document names (WebSub). Times are Unix seconds.

    ``since_s`` is when it came to ``status``, or was asked about it last (0 for never); ``lease_until_s`` is 0 without
    a lease. ``failures`` counts questions in a row that the hub did not answer.
    """

    hub: str
    topic: str
    status: Status
    since_s: float
    lease_until_s: float
    failures: int


class ChannelDetail(msgspec.Struct, frozen=True):
    """A channel with its place on the ring, how its last polls ended, and its latest entries (newest first).

    ``why`` it is polled as it is, and by whom, is its owner's word; null if that does not answer. ``wishes`` is
    how often its publisher wants to be asked; for ``paused_s`` more seconds nobody may. ``validators`` are those of its
    last version, ``note`` is an admin's, and so are ``site_requests_per_s`` (null for what the settings say) and
    ``bounds``: how often it is polled at most and at least, whatever the policy, and what held before (null if nobody
    ever set any). ``paces`` are how often it was polled, oldest first; of that only what has changed notably, and the
    last of it. ``hub`` is null where none pushes news.
    """

    channel: ChannelView
    owner: NodeInfo | None
    polling_set: tuple[NodeInfo, ...]
    why: PollExplanation | None
    polls: tuple[PollResult, ...]
    latest: tuple[Entry, ...]
    site: str
    site_requests_per_s: float | None
    wishes: PollingHints
    paused_s: float
    validators: Validators
    note: str
    paces: tuple[PollRate, ...]
    bounds: BoundsRevision | None
    hub: HubView | None


class ContentView(msgspec.Struct, frozen=True):
    """A channel's latest entries (newest first) at a version, and where they were found.

    ``cache``: at the worker that was asked; ``near``: at another one, so many ``hops`` away along filters; ``owner``:
    at the channel's owner; ``store``: nowhere else; ``publisher``: not even there, so that it was fetched. ``worker``
    is the name of that other one, if it is known.
    """

    version: int
    latest: tuple[Entry, ...]
    source: ContentSource
    hops: int
    worker: str


async def existing(request: web.Request) -> Channel:
    """Return the channel whose id stands in the path. Raises ``HTTPNotFound``."""
    channel = await request.app[STORE].channels.get(_checked_id(request.match_info["cid"]))
    if channel is None:
        raise _no_such_channel()
    return channel


def page_number(query: Mapping[str, str], total: int, size: int) -> tuple[int, int]:
    """Return the number of the page that a query names, and of the last page, for so many items."""
    pages, text = max(1, -(-total // size)), query.get("page", "1")[:9]
    return min(max(1, int(text) if text.isdecimal() else 1), pages), pages


async def detail(store: Store, text: str) -> ChannelDetail:
    """Return all about the channel whose id stands in a path. Raises ``HTTPNotFound``."""
    cid = _checked_id(text)
    ring, found, (state,), paces = await asyncio.gather(
        store.ring.view(), views(store, [cid]), store.channels.states([cid]), store.poll_rate_history.get(cid)
    )
    if state is None or not found:
        raise _no_such_channel()
    (view,) = found
    nodes = {node.id: node for node in ring.nodes}
    owner = ring.owner(cid)
    site = site_of(host_of(view.url))
    (why, polls, latest, hub), (paused_s, note, site_rate, bounds) = await asyncio.gather(
        asyncio.gather(
            _why(store, cid, asked=view.state in {"polled", "failing", "paused"}),
            store.channels.polls(cid, _POLLS_SHOWN),
            store.channels.latest(cid, _ENTRIES_SHOWN),
            store.websub.get(cid),
        ),
        asyncio.gather(
            store.request_budgets.paused_s(cid),
            store.admin_settings.note(cid),
            store.request_budgets.site_rate(site),
            store.poll_bounds.get(cid),
        ),
    )
    return ChannelDetail(
        channel=view,
        owner=nodes[owner] if owner else None,
        polling_set=tuple(nodes[turn.node] for turn in why.turns if turn.node in nodes) if why else (),
        why=why,
        polls=polls,
        latest=latest,
        site=site,
        site_requests_per_s=site_rate,
        wishes=state.wishes,
        paused_s=paused_s,
        validators=state.validators,
        note=note,
        paces=paces,
        bounds=bounds,
        hub=_hub(hub) if hub else None,
    )


def _hub(state: HubState) -> HubView:
    """Return what may be shown of a subscription: neither its secret nor its token."""
    named = state.target
    return HubView(named.hub, named.topic, state.status, state.since_s, state.lease_until_s, state.failures)


async def content(store: Store, channel: Channel) -> ContentView:
    """Return a channel's content from the nearest copy."""
    try:
        shown = await store.worker_requests.content(channel.id)
    except NoWorker:
        return ContentView(channel.version, await store.channels.content_entries(channel.id), "store", 0, "")
    return ContentView(shown.version, shown.latest, shown.source, shown.hops, shown.worker)


async def _why(store: Store, cid: ChannelId, *, asked: bool) -> PollExplanation | None:
    if not asked:
        return None
    try:
        return await store.worker_requests.explain(cid, _WHY_WITHIN_S)
    except (AssignmentPending, NoWorker):
        return None


def _checked_id(text: str) -> ChannelId:
    if not _ID.fullmatch(text):
        raise _no_such_channel()
    return text


def _no_such_channel() -> web.HTTPNotFound:
    return web.HTTPNotFound(text="There is no such channel. It may have been removed.")


async def views(store: Store, ids: Sequence[ChannelId]) -> tuple[ChannelView, ...]:
    """Return channels as they are now, in the order asked for, but for those that are gone."""
    found, counts = await asyncio.gather(store.admin_settings.read(ids), store.subscriptions.counts(list(ids)))
    blocked = await store.blocked_hosts.matching([host_of(each.channel.url) if each else "" for each in found])
    now_s = time.time()
    return tuple(
        _view(each, count, by, now_s)
        for each, count, by in zip(found, counts, blocked, strict=True)
        if each is not None
    )


def _view(found: AdministeredChannel, subscribers: int, blocked_by: str, now_s: float) -> ChannelView:
    channel = found.channel
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
        state=doing(row_of(found, now_s), subscribers, now_s, blocked=bool(blocked_by)),
        condition=channel.condition,
        moved_to=channel.moved_to,
        failing_since_s=found.failing_since_s,
        tags=found.tags,
        paused_until_s=found.paused_until_s,
        blocked_by=blocked_by,
    )
