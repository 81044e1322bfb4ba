"""The selector of a watched page: previewing and changing it.

The selector of a watched page is part of the channel's id. Changing the selector therefore creates another channel, to
which all subscribers move.
"""

import msgspec
from aiohttp import web

from service.console.api.operations import Operations
from service.console.app_keys import CHANNEL_CACHE, STORE
from service.console.auth.permissions import write_access
from service.console.forms import read_form, redisplay_on_error
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.page_rendering import render
from service.console.queries.channel_details import (
    ChannelDetail,
    read_channel_detail,
    read_requested_channel,
)
from service.console.resources.channels import channel as channel_page
from service.console.resources.channels.add_channel import Preview, Selector, make_preview
from service.errors import UserError
from service.feeds.canonical_urls import page_url, reader_of, selector_of
from service.model import Channel

operation = OPERATIONS = Operations()


class SetSelector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ``selector`` of the part of the page to watch: CSS, ``xpath=…`` or ``json=…``; "" for the whole page."""

    selector: Selector


@operation("PUT", "/channels/{cid}/selector", write_access("channels"), 404, 502)
async def put_selector(request: web.Request, body: SetSelector) -> ChannelDetail:
    """Change the selector of a page. This creates another channel for the page.

    All subscribers move to the new channel and are notified once.
    """
    successor = await _move_to_part(request, await read_requested_channel(request), body.selector)
    return await read_channel_detail(request.app[STORE], successor.id)


@operation("POST", "/channels/{cid}/selector/preview", write_access("channels"), 404, 502)
async def preview_selector(request: web.Request, body: SetSelector) -> Preview:
    """Preview another selector of a page without changing it."""
    store, channel = request.app[STORE], await read_requested_channel(request)
    url = _part_url(channel, body.selector)
    probed = await store.worker_requests.probe(url, as_page=True, keep=False, afresh=True)
    return await make_preview(store, probed.channel or channel, probed)


@redisplay_on_error(channel_page.page)
async def change_selector(request: web.Request) -> web.Response:
    """Preview another selector of a page; change it once the preview has been confirmed."""
    channel, form = await read_requested_channel(request), await read_form(request)
    selector = form.get("selector", "")
    if form.get("sure") == "1":
        successor = await _move_to_part(request, channel, selector)
        raise web.HTTPSeeOther(f"/channels/{successor.id}")
    request[AUDIT_DETAIL] = f"preview only: {selector or 'whole page'}"
    preview = await preview_selector(request, SetSelector(selector))
    subscribers = await request.app[STORE].subscriptions.count(channel.id)
    return render(
        request, "channel_selector.html", channel=channel, preview=preview, selector=selector, subscribers=subscribers
    )


async def _move_to_part(request: web.Request, channel: Channel, selector: str) -> Channel:
    """Create the channel for the part of the page that ``selector`` matches; return this new channel.

    All subscribers of ``channel`` move to the new channel. If a crash interrupts the move, call the function again.
    """
    store, url = request.app[STORE], _part_url(channel, selector)
    request[AUDIT_DETAIL] = f"{selector_of(channel.url) or 'whole page'} → {selector_of(url) or 'whole page'}"
    probed = await store.worker_requests.probe(url, as_page=True, afresh=True)
    await store.worker_requests.move(channel.id, url)
    successor = probed.channel or channel
    await store.worker_requests.announce_channel(successor.id)
    await request.app[CHANNEL_CACHE].reload([channel.id, successor.id])
    return successor


def _part_url(channel: Channel, selector: str) -> str:
    if channel.kind != "page":
        raise UserError(f"{channel.url} is a feed. Only pages have a selector.")
    if reader_of(channel.url):
        raise UserError("This page is behind a login. Only other pages have a selector.")
    url = page_url(channel.url, selector)
    if url == channel.url:
        raise UserError(f"This part is already being watched: {selector_of(url) or 'whole page'}.")
    return url
