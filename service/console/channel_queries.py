"""Queries that several pages and API operations share: channels for lists, one channel in detail, and its content.

They return the API's response types; templates render the same types.
"""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from aiohttp import web

from service.console.channel_cache import State, channel_state, make_row
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
_EXPLANATION_TIMEOUT_S = 1.0


class ChannelView(msgspec.Struct, frozen=True):
    """A channel and its state. Times are Unix seconds.

    ``selector`` is the CSS selector of the watched part of a page; ``url`` includes it. ``condition`` is the last
    problem that subscribers were notified of. ``moved_to`` is the id of the channel that replaces this one.
    ``paused_until_s`` is the end of a pause by an admin (0 if there is none), ``blocked_by`` the blocked host or domain
    that the channel is on ("" if there is none).
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
    """A page of the matching channels. ``next`` is the cursor of the next page, "" at the end; ``total`` counts all."""

    items: tuple[ChannelView, ...]
    next: str
    total: int


class HubView(msgspec.Struct, frozen=True):
    """A channel's WebSub subscription at the hub that its feed declares. Times are Unix seconds.

    ``since_s`` is the time of the last change of ``status`` or the last request to the hub (0 for never).
    ``lease_until_s`` is 0 without a lease. ``failures`` counts consecutive requests that the hub did not answer.
    """

    hub: str
    topic: str
    status: Status
    since_s: float
    lease_until_s: float
    failures: int


class ChannelDetail(msgspec.Struct, frozen=True):
    """A channel with its owner and polling set, last polls, and latest entries (newest first).

    ``why`` is the owner's explanation of the poll schedule, null if the owner does not answer. ``wishes`` are the
    polling hints in the publisher's feed; the publisher must not be polled for another ``paused_s`` seconds.
    ``validators`` are the HTTP validators of the last version. Admins set ``note``, ``site_requests_per_s`` (null for
    the default) and ``bounds``, the channel's own bounds on its poll rate with the previous ones (null if never set).
    ``paces`` are the significant changes of the poll interval, oldest first. ``hub`` is null without a WebSub hub.
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
    """A channel's latest entries (newest first) at a version, and the source of the copy.

    ``source`` is ``cache`` for the requested worker's cache, ``near`` for another worker, ``hops`` away in the
    attenuated Bloom filters, ``owner`` for the channel's owner, ``store`` for the database, and ``publisher`` if no
    copy was found and the content was fetched. ``worker`` is the name of the other worker, if known.
    """

    version: int
    latest: tuple[Entry, ...]
    source: ContentSource
    hops: int
    worker: str


async def requested_channel(request: web.Request) -> Channel:
    """Return the channel whose id is in the request's path. Raises ``HTTPNotFound``."""
    channel = await request.app[STORE].channels.get(_checked_id(request.match_info["cid"]))
    if channel is None:
        raise _no_such_channel()
    return channel


def page_numbers(query: Mapping[str, str], total: int, size: int) -> tuple[int, int]:
    """Return the requested page's number, limited to existing pages, and the number of pages for ``total`` items."""
    pages, text = max(1, -(-total // size)), query.get("page", "1")[:9]
    return min(max(1, int(text) if text.isdecimal() else 1), pages), pages


async def channel_detail(store: Store, text: str) -> ChannelDetail:
    """Return the details of the channel with the id ``text``. Raises ``HTTPNotFound``."""
    cid = _checked_id(text)
    ring, found, (state,), paces = await asyncio.gather(
        store.ring.view(), channel_views(store, [cid]), store.channels.states([cid]), store.poll_rate_history.get(cid)
    )
    if state is None or not found:
        raise _no_such_channel()
    (view,) = found
    nodes = {node.id: node for node in ring.nodes}
    owner = ring.owner(cid)
    site = site_of(host_of(view.url))
    (why, polls, latest, hub), (paused_s, note, site_rate, bounds) = await asyncio.gather(
        asyncio.gather(
            _explain_schedule(store, cid, view),
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
    """Return the public fields of a hub subscription, without its secret and token."""
    target = state.target
    return HubView(target.hub, target.topic, state.status, state.since_s, state.lease_until_s, state.failures)


async def nearest_content(store: Store, channel: Channel) -> ContentView:
    """Return a channel's content from the nearest copy."""
    try:
        shown = await store.worker_requests.content(channel.id)
    except NoWorker:
        return ContentView(channel.version, await store.channels.content_entries(channel.id), "store", 0, "")
    return ContentView(shown.version, shown.latest, shown.source, shown.hops, shown.worker)


async def _explain_schedule(store: Store, cid: ChannelId, view: ChannelView) -> PollExplanation | None:
    """Return the owner's explanation of the schedule; None if the channel is not polled or no owner answers in time."""
    if view.state not in {"polled", "failing", "paused"}:
        return None
    try:
        return await store.worker_requests.explain(cid, _EXPLANATION_TIMEOUT_S)
    except (AssignmentPending, NoWorker):
        return None


def _checked_id(text: str) -> ChannelId:
    if not _ID.fullmatch(text):
        raise _no_such_channel()
    return text


def _no_such_channel() -> web.HTTPNotFound:
    return web.HTTPNotFound(text="There is no such channel. It may have been removed.")


async def channel_views(store: Store, ids: Sequence[ChannelId]) -> tuple[ChannelView, ...]:
    """Return the views of the channels ``ids``, in this order, without removed ones."""
    found, counts = await asyncio.gather(store.admin_settings.read(ids), store.subscriptions.counts(list(ids)))
    blocked = await store.blocked_hosts.matching([host_of(each.channel.url) if each else "" for each in found])
    now_s = time.time()
    return tuple(
        _view(each, count, name, now_s)
        for each, count, name in zip(found, counts, blocked, strict=True)
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
        state=channel_state(make_row(found, now_s), subscribers, now_s, is_blocked=bool(blocked_by)),
        condition=channel.condition,
        moved_to=channel.moved_to,
        failing_since_s=found.failing_since_s,
        tags=found.tags,
        paused_until_s=found.paused_until_s,
        blocked_by=blocked_by,
    )
