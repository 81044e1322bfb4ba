"""The views of channels on pages and in the API: their state in lists, and all details of a single channel.

Functions return the API's response types, which the templates of pages use as well.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from math import inf
from typing import Final, Literal

import msgspec
from aiohttp import web
from msgspec import structs

from service.console.app_keys import STORE
from service.console.queries.channel_rows import State, channel_state, make_row
from service.corona.fleet_policy import SECONDS_PER_HOUR
from service.corona.optimizer.poll_explanation import BindingConstraint, PollExplanation
from service.errors import AssignmentPending, NoWorker
from service.feeds.canonical_urls import host_of, selector_of
from service.feeds.websub_protocol import HubState, Status
from service.model import Channel, ChannelId, Entry, NodeInfo, PollingHints, PollResult, Validators
from service.net.sites_and_networks import site_of
from service.store import Store
from service.store.channels.admin_settings import AdministeredChannel
from service.store.channels.poll_rate_history import PollRate
from service.store.coordination.poll_bounds_store import BoundsRevision

_POLLS_SHOWN = 10
_ENTRIES_SHOWN = 10
_EXPLANATION_TIMEOUT_S = 1.0
_NO_SUCH_CHANNEL = "There is no such channel. It may have been removed."
_UNPOLLED: Final[Mapping[State, str]] = {
    "idle": "It is not polled, because it has no subscribers and is not listed.",
    "moved": "It is not polled, because it has moved to a new URL.",
    "blocked": "It is not polled, because an admin has blocked its host.",
}


class ChannelView(msgspec.Struct, frozen=True):
    """A channel and its state. Times are Unix seconds.

    - ``selector`` is the selector of the watched part of a page; ``url`` includes it.
    - ``condition`` is the last problem that subscribers were notified of; "" means that there is none.
    - ``moved_to`` is the id of the channel that replaces this one; "" means that there is none.
    - ``paused_until_s`` is the end of a pause set by an admin; 0 means that there is none.
    - ``blocked_by`` is the blocked host or domain to which the channel belongs; "" means that there is none.
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
    condition: Literal["", "dead", "quarantined", "refused"]
    moved_to: ChannelId
    failing_since_s: float | None
    tags: tuple[str, ...]
    paused_until_s: float
    blocked_by: str


class ChannelPage(msgspec.Struct, frozen=True):
    """One page of the list of matching channels.

    ``next`` is the cursor of the next page; "" means that this is the last page. ``total`` is the number of channels on
    all pages.
    """

    items: tuple[ChannelView, ...]
    next: str
    total: int


class HubView(msgspec.Struct, frozen=True):
    """A channel's WebSub subscription at the hub that its feed declares. Times are Unix seconds.

    - ``hub`` is the hub's URL, and ``topic`` is the URL by which the hub knows the feed.
    - ``since_s`` is the time of the last change to ``status`` or of the last request to the hub; 0 means never.
    - ``lease_until_s`` is the end of the subscription; 0 means that the hub has not granted one.
    - ``failures`` is the number of requests sent since the hub last confirmed a request.
    """

    hub: str
    topic: str
    status: Status
    since_s: float
    lease_until_s: float
    failures: int


class ChannelPolling(msgspec.Struct, frozen=True):
    """The poll schedule of a channel.

    - ``level`` is the polling level (Corona §3.1). At level 0, all nodes poll the channel in turn. Each higher level
      divides the number of nodes by two, or by the base that the policy states.
    - ``nodes`` is the number of nodes that poll the channel.
    - ``mean_wait_s`` is the mean time in seconds from a change to the poll that finds it; null if the channel is
      currently not polled.
    - ``bound_by`` is the constraint that determines how often the channel is polled.
    - ``next_poll_at`` is the time of the next poll (Unix s); null if none is due.
    """

    level: float
    nodes: int
    polls_per_hour: float
    mean_wait_s: float | None
    bound_by: BindingConstraint
    next_poll_at: float | None


class ChannelDetail(msgspec.Struct, frozen=True, rename={"polling_hints": "wishes", "poll_rates": "paces"}):
    """A channel with its latest polls and its latest entries, both newest first.

    - ``owner`` is the node that is responsible for the channel, and ``polling_set`` contains the nodes that poll it.
    - ``polling`` is the poll schedule, and ``why`` is the owner's calculation of it. Both are null if the channel is
      not polled, or if the owner does not answer in time.
    - ``polling_unknown`` is the reason why ``polling`` is null; otherwise it is "".
    - ``site_requests_per_s`` is the limit that an admin has set for the requests to the channel's site; null means the
      default.
    - ``polling_hints`` (in JSON ``wishes``) are the hints in the publisher's feed.
    - ``paused_s`` is the number of seconds for which the publisher must not be polled.
    - ``validators`` are the HTTP validators of the last version.
    - ``note`` is a text written by admins.
    - ``poll_rates`` (in JSON ``paces``) are the significant changes to the poll interval, oldest first.
    - ``bounds`` is the last change to the channel's own bounds on its poll rate; null means that there was none.
    - ``hub`` is the WebSub subscription; null means that the feed declares no hub.
    """

    channel: ChannelView
    owner: NodeInfo | None
    polling_set: tuple[NodeInfo, ...]
    polling: ChannelPolling | None
    polling_unknown: str
    why: PollExplanation | None
    polls: tuple[PollResult, ...]
    latest: tuple[Entry, ...]
    site: str
    site_requests_per_s: float | None
    polling_hints: PollingHints
    paused_s: float
    validators: Validators
    note: str
    poll_rates: tuple[PollRate, ...]
    bounds: BoundsRevision | None
    hub: HubView | None


async def read_requested_channel(request: web.Request) -> Channel:
    """Return the channel whose id is in the request's path. Raises ``HTTPNotFound`` if it does not exist."""
    channel = await request.app[STORE].channels.get(request.match_info["cid"])
    if channel is None:
        raise web.HTTPNotFound(text=_NO_SUCH_CHANNEL)
    return channel


async def read_channel_detail(store: Store, cid: ChannelId) -> ChannelDetail:
    """Return the details of the channel with the id ``cid``. Raises ``HTTPNotFound`` if it does not exist."""
    ring, found, (state,), poll_rates = await asyncio.gather(
        store.ring.view(),
        read_channel_views(store, [cid]),
        store.channels.states([cid]),
        store.poll_rate_history.get(cid),
    )
    if state is None or not found:
        raise web.HTTPNotFound(text=_NO_SUCH_CHANNEL)
    (view,) = found
    nodes, owner, now_s = {node.id: node for node in ring.nodes}, ring.owner(cid), time.time()
    site = site_of(host_of(view.url))
    budgets = store.request_budgets
    (why, unknown), paused_s, site_rate = await asyncio.gather(
        _explain_schedule(store, cid, view), budgets.paused_s(cid, site), budgets.site_rate(site)
    )
    polls, latest, hub, note, bounds = await asyncio.gather(
        store.channels.polls(cid, _POLLS_SHOWN),
        store.channels.latest(cid, _ENTRIES_SHOWN),
        store.websub.get(cid),
        store.admin_settings.note(cid),
        store.poll_bounds.get(cid),
    )
    return ChannelDetail(
        channel=view,
        owner=nodes[owner] if owner else None,
        polling_set=tuple(nodes[turn.node] for turn in why.turns if turn.node in nodes) if why else (),
        polling=summarize_polling(why, max(view.paused_until_s, now_s + paused_s)) if why else None,
        polling_unknown=unknown,
        why=why,
        polls=polls,
        latest=latest,
        site=site,
        site_requests_per_s=site_rate,
        polling_hints=state.polling_hints,
        paused_s=paused_s,
        validators=state.validators,
        note=note,
        poll_rates=poll_rates,
        bounds=bounds,
        hub=_hub_view(hub) if hub else None,
    )


def _hub_view(state: HubState) -> HubView:
    """Return the public fields of a hub subscription, without its secret and token (guarantee I10)."""
    target = state.target
    return HubView(target.hub, target.topic, state.status, state.since_s, state.lease_until_s, state.failures)


async def _explain_schedule(store: Store, cid: ChannelId, view: ChannelView) -> tuple[PollExplanation | None, str]:
    """Ask the owner of a channel (the node responsible for it) to explain the channel's poll schedule.

    Return (explanation, problem). If the channel is not polled, or no owner replies in time, the explanation is None,
    and ``problem`` is the reason as a sentence. Otherwise ``problem`` is "".
    """
    if view.state in _UNPOLLED:
        return None, _UNPOLLED[view.state]
    try:
        return await store.worker_requests.explain(cid, _EXPLANATION_TIMEOUT_S), ""
    except (AssignmentPending, NoWorker) as error:
        return None, str(error)


def summarize_polling(why: PollExplanation, earliest_s: float) -> ChannelPolling:
    """Summarise a channel's poll schedule, as explained by the channel's owner in ``why``.

    ``earliest_s`` is a time (Unix s) before which the channel is not polled, for example the end of a pause.
    """
    next_s = why.next_poll_s(earliest_s)
    return ChannelPolling(
        level=why.level,
        nodes=why.nodes,
        polls_per_hour=SECONDS_PER_HOUR / max(why.gap_s, why.publisher_interval_s),
        mean_wait_s=why.wait_s if why.wait_s < inf else None,
        bound_by=why.bound,
        next_poll_at=next_s if next_s < inf else None,
    )


async def read_channel_views(store: Store, ids: Sequence[ChannelId]) -> tuple[ChannelView, ...]:
    """Return the views of the channels with these ids, in the order of ``ids``; leave out channels that are gone."""
    found, counts = await asyncio.gather(store.admin_settings.read(ids), store.channel_index.count(list(ids)))
    blocked = await store.blocked_hosts.matching([host_of(each.channel.url) if each else "" for each in found])
    now_s = time.time()
    return tuple(
        _view(each, count, name, now_s)
        for each, count, name in zip(found, counts, blocked, strict=True)
        if each is not None
    )


def _view(found: AdministeredChannel, subscribers: int, blocked_by: str, now_s: float) -> ChannelView:
    computed = {
        "selector": selector_of(found.channel.url),
        "subscribers": subscribers,
        "state": channel_state(make_row(found, now_s), subscribers, now_s, is_blocked=bool(blocked_by)),
        "blocked_by": blocked_by,
    }
    # The other fields have the names that they have in the store.
    return msgspec.convert(structs.asdict(found.channel) | structs.asdict(found) | computed, ChannelView)
