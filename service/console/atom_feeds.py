"""Atom feeds: those of people's subscriptions, at addresses that contain secrets, and those of public channels.

A feed is made from the latest versions of its channels when a client asks for it and it has changed. A person's mutes
and filters apply. Quiet hours, digests and intervals do not, because the client decides when to read.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from aiohttp import ETag, hdrs, web
from cachetools import TTLCache

from service.console.app_keys import SETTINGS, STORE
from service.feeds.atom_writer import AtomEntry, latest_entries, source_element, write_entries, write_feed
from service.feeds.canonical_urls import shown_url
from service.feeds.entries.version_parts import is_edit
from service.model import Delta, Subscription
from service.net.client_address import network_of
from service.net.http_server import client_of
from service.search.searcher import Searcher
from service.store import Store
from service.store.channels.channel_records import ChannelState
from service.users.change_suppression import suppressed_positions
from service.users.filters import build_subjects
from service.users.preferences import NO_PREFERENCES, PreferencesByNumber, has_filters

MAX_ENTRIES: Final = 100
MAX_REQUESTS_PER_MINUTE: Final = 60
"""Maximum number of requests for feeds in a minute from one network."""
_MAX_CHANNELS: Final = 100
"""Maximum number of channels whose entries are read for a feed: those that have changed last."""
_VERSIONS_PER_CHANNEL: Final = 30
_MAX_NETWORKS: Final = 10_000
_MINUTE_S: Final = 60

_Sources = Sequence[tuple[Subscription, ChannelState]]
"""The channels of a feed with the subscriptions to them."""


class FeedLimits:
    """Limits the work for feeds in this process. ``turn`` is held while a feed is made: one at a time."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._counts: TTLCache[str, list[int]] = TTLCache(_MAX_NETWORKS, ttl=_MINUTE_S)

    def count_request(self, request: web.Request) -> None:
        """Count a request; raise ``web.HTTPTooManyRequests`` if its network has sent too many in the last minute."""
        count = self._counts.setdefault(network_of(client_of(request).address), [0])
        count[0] += 1
        if count[0] > MAX_REQUESTS_PER_MINUTE:
            raise web.HTTPTooManyRequests(headers={hdrs.RETRY_AFTER: str(_MINUTE_S)})


FEED_LIMITS: Final = web.AppKey("limits on feeds", FeedLimits)


async def personal_feed(request: web.Request) -> web.StreamResponse:
    """Return the feed of a person's subscriptions at a secret address: all of them, one, or those in a folder."""
    request.app[FEED_LIMITS].count_request(request)
    store, query = request.app[STORE], request.query
    uid = await store.feed_links.owner(request.match_info["token"])
    if uid is None or await store.users.suspended_users([uid]):
        raise web.HTTPNotFound
    (jid,), (preferences,) = await store.users.jids([uid]), await store.preferences.of_users([uid])
    subscriptions = [
        each
        for each in await store.subscriptions.of_user(jid)
        if query.get("channel", str(each.number)) == str(each.number)
        and query.get("folder", _folder(each, preferences)).casefold() == _folder(each, preferences).casefold()
    ]
    if "channel" in query and not subscriptions:
        raise web.HTTPNotFound
    states = await store.channels.states([each.channel for each in subscriptions])
    sources = [(each, state) for each, state in zip(subscriptions, states, strict=True) if state is not None]
    response = await _respond(request, query.get("folder", ""), sources, preferences)
    response.headers["X-Robots-Tag"] = "noindex"
    return response


async def public_feed(request: web.Request) -> web.StreamResponse:
    """Return the feed of a public channel."""
    request.app[FEED_LIMITS].count_request(request)
    store, cid = request.app[STORE], request.match_info["cid"]
    public = await Searcher(store, request.app[SETTINGS].public_from_subscribers).filter_public([cid])
    (state,) = await store.channels.states([cid])
    if cid not in public or state is None:
        raise web.HTTPNotFound
    return await _respond(request, "", [(Subscription(cid, 0, 0, 0, 0.0), state)], {})


async def _respond(
    request: web.Request, title: str, sources: _Sources, preferences: PreferencesByNumber
) -> web.Response:
    """Return the response with a feed, or 304 if the client has it; ``title`` is "" for the default."""
    path = request.rel_url.raw_path_qs.removeprefix(request.app[SETTINGS].console_base_path)
    url = f"{request.app[SETTINGS].console_public_url.rstrip('/') or request.url.origin()}{path}"
    if not title:
        titles = [_title(subscription, state, preferences) for subscription, state in sources]
        title = titles[0] if len(titles) == 1 else "Coronet"
    described = [(msgspec.structs.astuple(each), state.channel.version, state.channel.title) for each, state in sources]
    digest = hashlib.sha256(repr((url, title, described, sorted(preferences.items()))).encode()).hexdigest()
    changed_s = int(max((max(each.since_s, state.updates.since_s) for each, state in sources), default=0.0))
    known, since = request.if_none_match, request.if_modified_since
    is_known = any(each.value in ("*", digest) for each in known or ())
    response = web.Response(status=304)
    if not is_known and (known is not None or since is None or since.timestamp() < changed_s):
        async with request.app[FEED_LIMITS].turn:
            entries = await _latest_entries(request.app[STORE], sources, preferences)
        feed = write_feed(title, url, changed_s, entries)
        response = web.Response(body=feed, content_type="application/atom+xml", charset="utf-8")
        if "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, ""):
            response.enable_compression(web.ContentCoding.gzip)
    response.etag, response.last_modified = ETag(digest, is_weak=True), changed_s
    response.headers[hdrs.CACHE_CONTROL] = f"private, max-age={_MINUTE_S}"
    response.headers[hdrs.VARY] = hdrs.ACCEPT_ENCODING
    return response


async def _latest_entries(store: Store, sources: _Sources, preferences: PreferencesByNumber) -> list[AtomEntry]:
    latest: list[AtomEntry] = []
    for subscription, state in sorted(sources, key=lambda source: -source[1].updates.since_s)[:_MAX_CHANNELS]:
        if len(latest) == MAX_ENTRIES and state.updates.since_s < latest[-1].order_s:
            break  # neither this channel nor the following ones have entries that are new enough
        found = await _channel_entries(store, subscription, state, preferences)
        latest = latest_entries([*reversed(latest), *found], MAX_ENTRIES)
    return latest


async def _channel_entries(
    store: Store, subscription: Subscription, state: ChannelState, preferences: PreferencesByNumber
) -> list[AtomEntry]:
    channel = msgspec.structs.replace(state.channel, title=_title(subscription, state, preferences))
    last = channel.version if subscription.paused_version is None else subscription.paused_version
    source, entries = source_element(channel), []
    for delta in await store.channels.deltas(channel.id, last - _VERSIONS_PER_CHANNEL + 1, last):
        omitted = frozenset(_omitted(delta, preferences, subscription.number) if has_filters(preferences) else ())
        entries += write_entries(channel, delta, omitted=omitted, further_elements=lambda _id: source)
    return entries


def _omitted(delta: Delta, preferences: PreferencesByNumber, number: int) -> Iterator[int]:
    """Yield the positions of the changes that the user's mutes, filters and conditions suppress."""
    versions = [(delta, build_subjects(delta.changes))]
    of_part = {edits: suppressed_positions(preferences, number, versions, edits=edits) for edits in (False, True)}
    for position, change in enumerate(delta.changes):
        positions = of_part[is_edit(change)]
        if positions is None or position in positions:
            yield position


def _folder(subscription: Subscription, preferences: PreferencesByNumber) -> str:
    return preferences.get(subscription.number, NO_PREFERENCES).folder


def _title(subscription: Subscription, state: ChannelState, preferences: PreferencesByNumber) -> str:
    return (
        preferences.get(subscription.number, NO_PREFERENCES).title
        or state.channel.title
        or shown_url(state.channel.url)
    )
