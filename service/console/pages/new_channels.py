"""New channels: what a worker reads at a URL, the message about it, and keeping it; also another part of a page.

A page's selector is part of its channel's id. So another part is another channel, to which all subscribers move.
"""

from http import HTTPStatus
from typing import Annotated

import msgspec
from aiohttp import hdrs, web

from service.console.audit_middleware import DETAIL
from service.console.auth.roles import act
from service.console.error_responses import in_plain_words, shown_on, status_of
from service.console.openapi import Operations
from service.console.pages import channel as channel_page
from service.console.pages.channel_queries import ChannelDetail, ChannelView, detail, existing, views
from service.console.rendering import ROSTER, STORE, answer, form_of, render
from service.errors import CoronetError, StoreUnavailable, UserError
from service.feeds.urls import MAX_SELECTOR_CHARS, MAX_URL_CHARS, page_url, selector_of
from service.model import Channel, Entry, FeedLink
from service.store import Store
from service.store.coordination.requests import ProbeReply

_Selector = Annotated[str, msgspec.Meta(max_length=MAX_SELECTOR_CHARS)]

operation = OPERATIONS = Operations()


class AddChannel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The URL of a feed, or of a page that names one.

    ``as_page``: watch the page itself, or the part of it that ``selector`` (CSS) matches.
    """

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_URL_CHARS)]
    as_page: bool = False
    selector: _Selector = ""


class Choices(msgspec.Struct, frozen=True):
    """The page names several feeds: add one of these instead."""

    choices: tuple[FeedLink, ...]


class Preview(msgspec.Struct, frozen=True):
    """What would be the channel of a URL: what a worker reads there now, newest first, and the message about it.

    ``message`` is what subscribers would be told in English if the first of ``latest`` were news; "" if there is
    nothing to tell, or nobody who knows, and then ``trouble`` says why. ``discovered``: the URL is a page that names
    this feed. ``known`` is the channel if there is one already.
    """

    url: str
    title: str
    link: str
    kind: str
    discovered: bool
    latest: tuple[Entry, ...]
    message: str
    trouble: str
    known: ChannelView | None


class SetSelector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``selector`` (CSS) names the part of the page that is to be watched; "" for the whole page."""

    selector: _Selector


@operation("POST", "/channels", act("channels"), 502, answers={201: ChannelDetail, 300: Choices})
async def post_channel(request: web.Request, wanted: AddChannel) -> web.Response:
    """Look at a URL, and have its channel polled from now on, even without subscribers."""
    store, probed = request.app[STORE], await _probe(request, wanted, keep=True)
    if probed.channel is None:
        return _choices(wanted, probed)
    await store.channels.set_listed(probed.channel.id, listed=True)
    response = answer(await detail(store, probed.channel.id), HTTPStatus.CREATED)
    response.headers[hdrs.LOCATION] = f"{request.path}/{probed.channel.id}"
    return response


@operation("POST", "/channels/preview", act("channels"), 502, answers={200: Preview, 300: Choices})
async def preview_channel(request: web.Request, wanted: AddChannel) -> web.Response:
    """Look at a URL, and show what its channel would be and what subscribers would be told; nothing is kept."""
    probed = await _probe(request, wanted, keep=False)
    if probed.channel is None:
        return _choices(wanted, probed)
    return answer(await _preview(request.app[STORE], probed.channel, probed))


@operation("PUT", "/channels/{cid}/selector", act("channels"), 404, 502)
async def put_selector(request: web.Request, wanted: SetSelector) -> ChannelDetail:
    """Watch another part of a channel's page, as a channel to which all its subscribers move; they are told once."""
    successor = await _move_to_part(request, await existing(request), wanted.selector)
    return await detail(request.app[STORE], successor.id)


@operation("POST", "/channels/{cid}/selector/preview", act("channels"), 404, 502)
async def preview_selector(request: web.Request, wanted: SetSelector) -> Preview:
    """Look at another part of a channel's page, and show what subscribers would be told; nothing is changed."""
    return await _preview_part(request, await existing(request), wanted.selector)


async def add_form(request: web.Request) -> web.Response:
    """Ask for a URL; or, if one stands in the query, which part of that page is to be watched."""
    if url := request.query.get("url", "")[:MAX_URL_CHARS]:
        selector = request.query.get("selector", "")[:MAX_SELECTOR_CHARS]
        return render(request, "channel_page.html", url=url, selector=selector, chosen=True, error="")
    return render(request, "channel_add.html", url="", error="")


async def preview(request: web.Request) -> web.Response:
    """Have a worker look at a URL, and show what it read and what people would be told; nothing is kept.

    What is a page without a feed, or given as one (``as_page``), can be watched itself.
    """
    return await _add(request, keep=False)


async def keep(request: web.Request) -> web.Response:
    """Have a URL's channel polled from now on, even without subscribers."""
    return await _add(request, keep=True)


async def _add(request: web.Request, *, keep: bool) -> web.Response:
    form = await form_of(request)
    url, selector, as_page = form.get("url", ""), form.get("selector", ""), form.get("as_page") == "1"
    asked, store = AddChannel(url, as_page, selector), request.app[STORE]
    try:
        probed = await _probe(request, asked, keep=keep)
    except StoreUnavailable:
        raise
    except CoronetError as error:
        asking, words = "channel_page.html" if as_page else "channel_add.html", in_plain_words(error)
        return render(request, asking, status_of(error), url=url, selector=selector, chosen=as_page, error=words)
    if probed.page:
        return render(request, "channel_page.html", url=url, selector="", chosen=False, error="")
    if probed.channel is None:
        return render(request, "channel_choices.html", url=url, choices=probed.choices)
    if keep:
        await store.channels.set_listed(probed.channel.id, listed=True)
        raise web.HTTPSeeOther(f"/channels/{probed.channel.id}")
    seen = await _preview(store, probed.channel, probed)
    return render(request, "channel_preview.html", asked=asked, seen=seen)


@shown_on(channel_page.page)
async def choose_part(request: web.Request) -> web.Response:
    """Watch another part of a channel's page, after it was seen what that reads."""
    channel, form = await existing(request), await form_of(request)
    selector = form.get("selector", "")
    if form.get("sure") == "1":
        successor = await _move_to_part(request, channel, selector)
        raise web.HTTPSeeOther(f"/channels/{successor.id}")
    request[DETAIL] = f"only a preview of {selector or 'the whole page'}"
    seen = await _preview_part(request, channel, selector)
    subscribers = await request.app[STORE].subscriptions.count(channel.id)
    return render(
        request, "channel_selector.html", channel=channel, seen=seen, selector=selector, subscribers=subscribers
    )


async def _probe(request: web.Request, asked: AddChannel, *, keep: bool) -> ProbeReply:
    """Have a worker look at a URL, and keep it as a channel or not. Raises what the worker met."""
    request[DETAIL] = f"{asked.url} {asked.selector}".strip()
    as_page = asked.as_page or bool(asked.selector)
    return await request.app[STORE].worker_requests.probe(
        page_url(asked.url, asked.selector), as_page=as_page, keep=keep
    )


async def _preview(store: Store, channel: Channel, probed: ProbeReply) -> Preview:
    """Return what would come of a ``channel`` that was ``probed``."""
    message, trouble = "", ""
    try:
        message = await store.dry_runs.preview_message(channel, probed.latest)
    except StoreUnavailable:
        raise
    except CoronetError as error:
        trouble = in_plain_words(error)
    return Preview(
        url=channel.url,
        title=channel.title,
        link=channel.link,
        kind=channel.kind,
        discovered=probed.discovered,
        latest=probed.latest,
        message=message,
        trouble=trouble,
        known=next(iter(await views(store, [channel.id])), None),
    )


def _choices(asked: AddChannel, probed: ProbeReply) -> web.Response:
    if probed.page:
        url = page_url(asked.url, asked.selector)
        raise UserError(f"{url} is a page that names no feed. To watch the page itself, say `as_page`.")
    return answer(Choices(probed.choices), HTTPStatus.MULTIPLE_CHOICES)


async def _preview_part(request: web.Request, channel: Channel, selector: str) -> Preview:
    store, url = request.app[STORE], _part_url(channel, selector)
    probed = await store.worker_requests.probe(url, as_page=True, keep=False, afresh=True)
    return await _preview(store, probed.channel or channel, probed)


async def _move_to_part(request: web.Request, channel: Channel, selector: str) -> Channel:
    """Move all subscribers to another part. It can be repeated after a crash at any point."""
    store, url = request.app[STORE], _part_url(channel, selector)
    request[DETAIL] = f"{selector_of(channel.url) or 'the whole page'} → {selector_of(url) or 'the whole page'}"
    probed = await store.worker_requests.probe(url, as_page=True, afresh=True)
    await store.worker_requests.move(channel.id, url)
    successor = probed.channel or channel
    await store.worker_requests.announce_channel(successor.id)
    await request.app[ROSTER].again([channel.id, successor.id])
    return successor


def _part_url(channel: Channel, selector: str) -> str:
    if channel.kind != "page":
        raise UserError(f"{channel.url} is a feed: only pages are watched by parts.")
    url = page_url(channel.url, selector)
    if url == channel.url:
        raise UserError(f"That is watched already: {selector_of(url) or 'the whole page'}.")
    return url
