"""Another part of a page is watched instead of the present one: seen first, then everybody moves to it.

The selector is part of a channel's id, so that this is a channel of its own, and the present one its signpost.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from aiohttp import web

from service.console.access import act
from service.console.adding import Preview, previewed
from service.console.audited import DETAIL
from service.console.catalogue import ChannelDetail, detail, existing
from service.console.channel_page import shown
from service.console.failures import in_plain_words, status_of
from service.console.openapi import BODY, Operation, Parameter
from service.console.site import ROSTER, STORE, render
from service.console.wire import answer, body
from service.errors import CoronetError, StoreUnavailable, UserError
from service.feeds.urls import MAX_SELECTOR_CHARS, page_url, selector_of
from service.model import Channel
from service.store import Store


class SetSelector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``selector`` (CSS) names the part of the page that is to be watched; "" for the whole page."""

    selector: Annotated[str, msgspec.Meta(max_length=MAX_SELECTOR_CHARS)]


async def preview_selector(request: web.Request) -> web.Response:
    """Look at another part of a channel's page, and show what subscribers would be told; nothing is changed."""
    store, channel = request.app[STORE], await existing(request.app[STORE], request.match_info["cid"])
    wanted = await body(request, SetSelector)
    return answer(await _seen(store, channel, _url(channel, wanted.selector)))


async def put_selector(request: web.Request) -> web.Response:
    """Watch another part of a channel's page, as a channel to which all its subscribers move; they are told once."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    wanted = await body(request, SetSelector)
    successor = await _watch(request, channel, wanted.selector)
    return answer(await detail(request.app[STORE], successor.id))


async def choose(request: web.Request) -> web.Response:
    """Watch another part of a channel's page, after it was seen what that reads."""
    store, channel = request.app[STORE], await existing(request.app[STORE], request.match_info["cid"])
    form = await request.post()
    selector = str(form.get("selector", "")).strip()
    try:
        if form.get("sure") == "1":
            successor = await _watch(request, channel, selector)
            raise web.HTTPSeeOther(f"/channels/{successor.id}")
        request[DETAIL] = f"only a preview of {selector or 'the whole page'}"
        seen = await _seen(store, channel, _url(channel, selector))
    except StoreUnavailable:
        raise
    except CoronetError as error:
        return await shown(request, status_of(error), error=in_plain_words(error))
    subscribers = await store.subscriptions.count(channel.id)
    return render(
        request, "channel_selector.html", channel=channel, seen=seen, selector=selector, subscribers=subscribers
    )


async def _seen(store: Store, channel: Channel, url: str) -> Preview:
    probed = await store.requests.probe(url, as_page=True, keep=False, afresh=True)
    return await previewed(store, probed.channel or channel, probed)


async def _watch(request: web.Request, channel: Channel, selector: str) -> Channel:
    """Have everybody move to another part. Whatever dies on the way, this can be repeated."""
    store, url = request.app[STORE], _url(channel, selector)
    request[DETAIL] = f"{selector_of(channel.url) or 'the whole page'} → {selector_of(url) or 'the whole page'}"
    probed = await store.requests.probe(url, as_page=True, afresh=True)
    await store.requests.move(channel.id, url)
    successor = probed.channel or channel
    await store.requests.wanted(successor.id)
    await request.app[ROSTER].again([channel.id, successor.id])
    return successor


def _url(channel: Channel, selector: str) -> str:
    if channel.kind != "page":
        raise UserError(f"{channel.url} is a feed: only pages are watched by parts.")
    url = page_url(channel.url, selector)
    if url == channel.url:
        raise UserError(f"That is watched already: {selector_of(url) or 'the whole page'}.")
    return url


_CID: Final = Parameter("cid", "path", "A channel's id: 40 hexadecimal digits.")

OPERATIONS: Final[Sequence[Operation]] = (
    Operation(
        "PUT",
        "/channels/{cid}/selector",
        act("channels"),
        put_selector,
        {200: ChannelDetail},
        body=SetSelector,
        parameters=(_CID,),
        problems=(404, 502, *BODY),
    ),
    Operation(
        "POST",
        "/channels/{cid}/selector/preview",
        act("channels"),
        preview_selector,
        {200: Preview},
        body=SetSelector,
        parameters=(_CID,),
        problems=(404, 502, *BODY),
    ),
)
