"""The pages and API operations for adding a channel, with a preview of its entries and notifications."""

from http import HTTPStatus
from typing import Annotated

import msgspec
from aiohttp import hdrs, web

from service.console.api.operations import Operations, json_response
from service.console.app_keys import SETTINGS, STORE, local_path
from service.console.auth.permissions import write_access
from service.console.forms import read_form, redisplay_on_error
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.middleware.error_responses import public_message
from service.console.page_rendering import render
from service.console.queries.channel_details import (
    ChannelDetail,
    ChannelView,
    read_channel_detail,
    read_channel_views,
)
from service.errors import CoronetError, StoreUnavailable, UserError
from service.feeds.canonical_urls import MAX_SELECTOR_CHARS, MAX_URL_CHARS, SHARED, page_url, protected_url
from service.feeds.credentials import parse_credential
from service.model import Channel, Entry, FeedLink
from service.net.credential_vault import CredentialVault
from service.store import Store
from service.store.coordination.worker_requests import ProbeReply

Selector = Annotated[str, msgspec.Meta(max_length=MAX_SELECTOR_CHARS)]
_MAX_CREDENTIAL_CHARS = 4_096

operation = OPERATIONS = Operations()


class AddChannel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The URL of a feed, or of a page that links to one.

    If ``as_page`` is true, the page itself is watched. ``selector`` (CSS, ``xpath=…`` or ``json=…``) selects the part
    of the page to watch; "" means the whole page.

    ``credential`` is the login of a private feed, which every user may then read: ``login NAME PASSWORD``, ``token
    TOKEN``, ``cookie NAME=VALUE`` or ``header NAME: VALUE``. It replaces the present one, if any.
    """

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_URL_CHARS)]
    as_page: bool = False
    selector: Selector = ""
    credential: Annotated[str, msgspec.Meta(max_length=_MAX_CREDENTIAL_CHARS)] = ""


class FeedChoices(msgspec.Struct, frozen=True):
    """The feeds to which the page links. The page itself was not added; add one of these feeds instead."""

    choices: tuple[FeedLink, ...]


class Preview(msgspec.Struct, frozen=True):
    """A preview of the channel for a URL: its current entries, newest first, and an example notification.

    - ``discovered`` is true if the requested URL is a page that links to the channel's feed.
    - ``latest`` contains the current entries.
    - ``message`` is the English notification for the newest entry; "" means that there is no example.
    - ``trouble`` is the reason why there is no example, if it is known; otherwise "".
    - ``known`` is the channel if it already exists; otherwise null.
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


@operation("POST", "/channels", write_access("channels"), 502, responses={201: ChannelDetail, 300: FeedChoices})
async def post_channel(request: web.Request, body: AddChannel) -> web.Response:
    """Add the channel for a URL. It is polled even without subscribers."""
    store, probed = request.app[STORE], await _probe(request, body, keep=True)
    if probed.channel is None:
        return _offer_feeds(body, probed)
    await store.channels.set_listed(probed.channel.id, listed=True)
    response = json_response(await read_channel_detail(store, probed.channel.id), HTTPStatus.CREATED)
    response.headers[hdrs.LOCATION] = f"{local_path(request)}/{probed.channel.id}"
    return response


@operation("POST", "/channels/preview", write_access("channels"), 502, responses={200: Preview, 300: FeedChoices})
async def preview_channel(request: web.Request, body: AddChannel) -> web.Response:
    """Preview the channel for a URL, and an example notification, without adding the channel."""
    probed = await _probe(request, body, keep=False)
    if probed.channel is None:
        return _offer_feeds(body, probed)
    return json_response(await make_preview(request.app[STORE], probed.channel, probed))


async def add_form(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Show the form for adding a channel.

    The form asks for a URL. If the request has the field ``as_page``, the form asks which part (selector) of the
    page at the URL to watch. ``error`` is the message to show if an attempt failed.
    """
    body = await _read_body(request)
    template = "channel_page.html" if body.as_page else "channel_add.html"
    imports = await request.app[STORE].console_imports.all()
    return render(request, template, status, body=body, error=error, imports=imports)


@redisplay_on_error(add_form)
async def preview(request: web.Request) -> web.Response:
    """Preview the channel for a URL without adding it.

    For a page with no feed or with several feeds, show the choices: to watch the page itself, or one of the feeds.
    """
    body = await _read_body(request)
    probed = await _probe(request, body, keep=False)
    if probed.channel is None:
        return _offer_choices(request, body, probed)
    preview = await make_preview(request.app[STORE], probed.channel, probed)
    return render(request, "channel_preview.html", body=body, preview=preview)


@redisplay_on_error(add_form)
async def add(request: web.Request) -> web.Response:
    """Add the channel for a URL. It is polled even without subscribers."""
    body = await _read_body(request)
    probed = await _probe(request, body, keep=True)
    if probed.channel is None:
        return _offer_choices(request, body, probed)
    await request.app[STORE].channels.set_listed(probed.channel.id, listed=True)
    raise web.HTTPSeeOther(f"/channels/{probed.channel.id}")


async def _read_body(request: web.Request) -> AddChannel:
    form = await read_form(request)
    as_page, selector = form.get("as_page") == "1", form.get("selector", "")
    return AddChannel(form.get("url", ""), as_page, selector, form.get("credential", ""))


def _offer_choices(request: web.Request, body: AddChannel, probed: ProbeReply) -> web.Response:
    """Show the choices for the URL of a page: watch the page itself, or one of the feeds to which it links.

    ``probed`` is a worker's reply about the URL.
    """
    if probed.page:
        return render(request, "channel_page.html", body=body)
    return render(request, "channel_choices.html", url=body.url, choices=probed.choices)


async def _probe(request: web.Request, body: AddChannel, *, keep: bool) -> ProbeReply:
    """Ask a worker to fetch the URL in ``body``; return the worker's reply.

    If ``keep`` is true, the worker also creates the channel for the URL. Raises the error that the worker reports, and
    :class:`OperationalError` if no worker replies.
    """
    url, sealed = page_url(body.url, body.selector), ""
    request[AUDIT_DETAIL] = f"{body.url} {body.selector}".strip()
    as_page = body.as_page or bool(body.selector)
    if body.credential:
        credential = parse_credential(body.credential)
        if credential is None or not credential.header or body.selector:
            raise UserError(
                "This login cannot be used. Write login NAME PASSWORD, token TOKEN, cookie NAME=VALUE or header NAME:"
                " VALUE, and no selector."
            )
        url = protected_url(url, SHARED)
        sealed = CredentialVault(request.app[SETTINGS]).seal(credential, url)
    return await request.app[STORE].worker_requests.probe(url, as_page=as_page, keep=keep, credential=sealed)


async def make_preview(store: Store, channel: Channel, probed: ProbeReply) -> Preview:
    """Return the preview of ``channel``, with an example notification or, if known, the reason why there is none.

    ``probed`` is a worker's reply about the channel's URL.
    """
    message, trouble = "", ""
    try:
        message = await store.bot_requests.preview_message(channel, probed.latest)
    except StoreUnavailable:
        raise
    except CoronetError as error:
        trouble = public_message(error)
    return Preview(
        url=channel.url,
        title=channel.title,
        link=channel.link,
        kind=channel.kind,
        discovered=probed.discovered,
        latest=probed.latest,
        message=message,
        trouble=trouble,
        known=next(iter(await read_channel_views(store, [channel.id])), None),
    )


def _offer_feeds(body: AddChannel, probed: ProbeReply) -> web.Response:
    """Return a response that lists the feeds to which the requested page links.

    ``probed`` is a worker's reply about the page's URL. Raises UserError if the page links to no feeds.
    """
    if probed.page:
        url = page_url(body.url, body.selector)
        raise UserError(f"{url} is a page without a feed. To watch the page itself, set `as_page`.")
    return json_response(FeedChoices(probed.choices), HTTPStatus.MULTIPLE_CHOICES)
