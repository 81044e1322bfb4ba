"""Parts that all handlers of the console share: application keys, pages from templates, JSON, and static files.

Only static files are compressed. A page reflects parts of its address beside secrets, whose bytes could be guessed from
the compressed size.
"""

import asyncio
import gzip
import hashlib
import mimetypes
import re
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec
from aiohttp import hdrs, web
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from service.clock import Clock
from service.console import formatting
from service.console.auth.roles import Visitor
from service.console.channel_cache import FOREIGN_CURSOR, Finder, Roster
from service.console.metrics_sampler import Pulse
from service.errors import UserError
from service.feeds.sandbox.opml_reader import OpmlReader
from service.settings import Settings
from service.store import Store
from service.store.console.accounts import Role

SETTINGS: Final = web.AppKey("settings", Settings)
STORE: Final = web.AppKey("store", Store)
CLOCK: Final = web.AppKey("clock", Clock)
ROSTER: Final = web.AppKey("roster", Roster)
PULSE: Final = web.AppKey("pulse", Pulse)
FINDER: Final = web.AppKey("finder", Finder)
OPML_READER: Final = web.AppKey("opml_reader", OpmlReader)
TEMPLATES: Final = web.AppKey("templates", Environment)

VISITOR: Final = web.RequestKey("visitor", Visitor)
"""Who is asking; set by the guard on closed routes."""
CSRF: Final = web.RequestKey("csrf", str)
"""The token this visitor's forms must send back."""

MOST_ITEMS: Final = 200
"""Of one page of a list."""

_ROOM: Final = Path(__file__).parent
_STATIC: Final = _ROOM / "static"
_PATHS: Final = {path.relative_to(_STATIC).as_posix(): path for path in _STATIC.rglob("*") if path.is_file()}
_COMPRESSED: Final = ("text/", "application/javascript", "application/json", "image/svg+xml")
_LOG_CURSOR: Final = re.compile(r"\d{1,19}-\d{1,19}", re.ASCII)
_Body = TypeVar("_Body")


@cache
def templates() -> Environment:
    """Return the templates' environment: everything is escaped, an unknown name is an error. Each is compiled once."""
    environment = Environment(
        loader=FileSystemLoader(_ROOM / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(formatting.FILTERS)
    return environment


def zone_of(request: web.Request) -> str:
    """Return the time zone by whose clocks the visitor is shown times."""
    visitor = request.get(VISITOR)
    return (visitor.zone if visitor else "") or request.app[SETTINGS].console_zone


def render(request: web.Request, template: str, status: int = 200, **values: object) -> web.Response:
    """Return a page made from a template, which also knows who is asking, what they may do, and what time they have."""
    visitor = request.get(VISITOR)
    text = (
        request.app[TEMPLATES]
        .get_template(template)
        .render(
            values,
            path=request.path,
            now_s=request.app[CLOCK].wall_s(),
            zone=zone_of(request),
            visitor=visitor.name if visitor else "",
            operates=visitor is not None and visitor.role.covers(Role.OPERATOR),
            administers=visitor is not None and visitor.role.covers(Role.ADMIN),
            csrf=request.get(CSRF, ""),
            chats=bool(request.app[SETTINGS].chat_websocket_url),
        )
    )
    return web.Response(status=status, text=text, content_type="text/html")


def answer(value: object, status: int = HTTPStatus.OK) -> web.Response:
    """Return a value as JSON."""
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")


async def body(request: web.Request, kind: type[_Body]) -> _Body:
    """Return the request's JSON body as this type. Raises :class:`UserError` if it does not fit, else HTTP errors."""
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="Send the body as application/json.")
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except msgspec.ValidationError as error:
        raise UserError(f"The body does not fit: {error}") from error
    except msgspec.DecodeError as error:
        raise web.HTTPBadRequest(text=f"The body is not JSON: {error}") from error


def limit(request: web.Request, usual: int) -> int:
    """Return the most items that the request wants. Raises :class:`UserError` unless it is a number in range."""
    try:
        wanted: int = msgspec.convert(
            request.query.get("limit", str(usual)), Annotated[int, msgspec.Meta(ge=1, le=MOST_ITEMS)], strict=False
        )
    except msgspec.ValidationError as error:
        raise UserError(f"limit: {error}") from error
    return wanted


def log_cursor(request: web.Request) -> str:
    """Return the place in a log where a page begins, "" for its newest entry. Raises :class:`UserError`."""
    cursor = request.query.get("cursor", "")
    if cursor and not _LOG_CURSOR.fullmatch(cursor):
        raise UserError(FOREIGN_CURSOR)
    return cursor


async def form_of(request: web.Request) -> dict[str, str]:
    """Return the fields of a form, stripped; of a field that came several times, the last one."""
    return {name: str(value).strip() for name, value in (await request.post()).items()}


async def asset(request: web.Request) -> web.Response:
    """Send one of our own files."""
    name = request.match_info["path"]
    if name not in _PATHS:
        raise web.HTTPNotFound
    content, smaller, media_type, etag = await asyncio.to_thread(_asset, name)
    headers = {hdrs.CACHE_CONTROL: "public, no-cache", hdrs.ETAG: f'"{etag}"', hdrs.VARY: hdrs.ACCEPT_ENCODING}
    if any(tag.value == etag for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    if len(smaller) < len(content) and "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, ""):
        content = smaller
        headers[hdrs.CONTENT_ENCODING] = "gzip"
    return web.Response(body=content, content_type=media_type, headers=headers)


@cache
def _asset(name: str) -> tuple[bytes, bytes, str, str]:
    """Return a file's body, the same compressed if that may help, its media type and its entity tag."""
    content = _PATHS[name].read_bytes()
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    smaller = gzip.compress(content, 9, mtime=0) if media_type.startswith(_COMPRESSED) else content
    return content, smaller, media_type, hashlib.sha256(content).hexdigest()[:16]
