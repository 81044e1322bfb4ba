"""A channel before it is one: what a worker reads at a URL, the message that would come of it, and keeping it."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from aiohttp import hdrs, web

from service.console.access import act
from service.console.audited import DETAIL
from service.console.catalogue import ChannelDetail, ChannelView, detail, views
from service.console.failures import in_plain_words
from service.console.openapi import BODY, Operation
from service.console.site import STORE
from service.console.wire import answer, body
from service.errors import CoronetError, StoreUnavailable, UserError
from service.feeds.urls import MAX_SELECTOR_CHARS, MAX_URL_CHARS, page_url
from service.model import Channel, Entry, FeedLink
from service.store import Store
from service.store.requests import Probed


class AddChannel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The URL of a feed, or of a page that names one.

    ``as_page``: watch the page itself, or the part of it that ``selector`` (CSS) matches.
    """

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_URL_CHARS)]
    as_page: bool = False
    selector: Annotated[str, msgspec.Meta(max_length=MAX_SELECTOR_CHARS)] = ""


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


async def looked_at(store: Store, asked: AddChannel, *, keep: bool) -> Probed:
    """Have a worker look at what is to be added, and keep it as a channel or leave everything as it was.

    Raises what the worker met.
    """
    as_page = asked.as_page or bool(asked.selector)
    return await store.requests.probe(page_url(asked.url, asked.selector), as_page=as_page, keep=keep)


async def previewed(store: Store, channel: Channel, probed: Probed) -> Preview:
    """Return what would come of a ``channel`` that was ``probed``."""
    message, trouble = "", ""
    try:
        message = await store.rehearsals.draft(channel, probed.latest)
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


async def preview_channel(request: web.Request) -> web.Response:
    """Look at a URL, and show what its channel would be and what subscribers would be told; nothing is kept."""
    asked = await _asked(request)
    probed = await looked_at(request.app[STORE], asked, keep=False)
    if probed.channel is None:
        return answer(Choices(_choices(asked, probed)), HTTPStatus.MULTIPLE_CHOICES)
    return answer(await previewed(request.app[STORE], probed.channel, probed))


async def post_channel(request: web.Request) -> web.Response:
    """Look at a URL, and have its channel polled from now on, even without subscribers."""
    store, asked = request.app[STORE], await _asked(request)
    probed = await looked_at(store, asked, keep=True)
    if probed.channel is None:
        return answer(Choices(_choices(asked, probed)), HTTPStatus.MULTIPLE_CHOICES)
    await store.channels.set_listed(probed.channel.id, listed=True)
    response = answer(await detail(store, probed.channel.id), HTTPStatus.CREATED)
    response.headers[hdrs.LOCATION] = f"{request.path}/{probed.channel.id}"
    return response


async def _asked(request: web.Request) -> AddChannel:
    asked = await body(request, AddChannel)
    request[DETAIL] = f"{asked.url} {asked.selector}".strip()
    return asked


def _choices(asked: AddChannel, probed: Probed) -> tuple[FeedLink, ...]:
    if probed.page:
        url = page_url(asked.url, asked.selector)
        raise UserError(f"{url} is a page that names no feed. To watch the page itself, say `as_page`.")
    return probed.choices


OPERATIONS: Final[Sequence[Operation]] = (
    Operation(
        "POST",
        "/channels",
        act("channels"),
        post_channel,
        {201: ChannelDetail, 300: Choices},
        body=AddChannel,
        problems=(*BODY, 502),
    ),
    Operation(
        "POST",
        "/channels/preview",
        act("channels"),
        preview_channel,
        {200: Preview, 300: Choices},
        body=AddChannel,
        problems=(*BODY, 502),
    ),
)
