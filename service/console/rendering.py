"""Request and response helpers of all handlers: application keys, templates, JSON, and static files.

Only static files are compressed. Pages contain secrets next to parts of their URL, so a compressed page's size could
reveal the secrets (BREACH).
"""

import asyncio
import gzip
import hashlib
import mimetypes
import time
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from aiohttp import hdrs, web
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from service.console import formatting
from service.console.auth.permissions import Principal
from service.console.channel_cache import ChannelCache
from service.console.metrics_sampler import MetricsSampler
from service.errors import UserError
from service.feeds.sandbox.opml_reader import OpmlReader
from service.settings import Settings
from service.store import Store
from service.store.console.accounts import Role

SETTINGS: Final = web.AppKey("settings", Settings)
STORE: Final = web.AppKey("store", Store)
CHANNEL_CACHE: Final = web.AppKey("cache", ChannelCache)
METRICS: Final = web.AppKey("metrics", MetricsSampler)
OPML_READER: Final = web.AppKey("opml_reader", OpmlReader)
TEMPLATES: Final = web.AppKey("templates", Environment)

PRINCIPAL: Final = web.RequestKey("principal", Principal)
"""The sender of the request; set by the authorization middleware on closed routes."""
CSRF: Final = web.RequestKey("csrf", str)
"""The CSRF token that forms of the page must send back."""

_FOLDER: Final = Path(__file__).parent
_STATIC: Final = _FOLDER / "static"
_STATIC_FILES: Final = {path.relative_to(_STATIC).as_posix(): path for path in _STATIC.rglob("*") if path.is_file()}
_COMPRESSED_TYPES: Final = ("text/", "application/javascript", "application/json", "image/svg+xml")
_Body = TypeVar("_Body")


@cache
def load_templates(base_path: str = "") -> Environment:
    """Return the Jinja environment of the console's templates, whose links begin with ``base_path``.

    Values are escaped, and undefined names are errors. Each template is compiled once.
    """
    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(formatting.FILTERS)
    environment.globals |= {"base": base_path, "error": ""}
    return environment


def local_path(request: web.Request) -> str:
    """Return the path of a request on this console, without the setting ``console_base_path``."""
    return request.path.removeprefix(request.app[SETTINGS].console_base_path)


def time_zone(request: web.Request) -> str:
    """Return the time zone in which the response shows times: the account's zone if set, else the console's default."""
    principal = request.get(PRINCIPAL)
    return (principal.zone if principal else "") or request.app[SETTINGS].console_zone


def render(request: web.Request, template: str, status: int = 200, **values: object) -> web.Response:
    """Return the HTML page that ``template`` renders with ``values``.

    The template also gets the request, the path on this console, the settings, the current time, the account's name,
    time zone and rights, and the CSRF token.
    """
    principal = request.get(PRINCIPAL)
    text = (
        request.app[TEMPLATES]
        .get_template(template)
        .render(
            values,
            request=request,
            settings=request.app[SETTINGS],
            path=local_path(request),
            now_s=time.time(),
            zone=time_zone(request),
            account_name=principal.name if principal else "",
            can_operate=principal is not None and principal.role.covers(Role.OPERATOR),
            can_administer=principal is not None and principal.role.covers(Role.ADMIN),
            csrf=request.get(CSRF, ""),
        )
    )
    return web.Response(status=status, text=text, content_type="text/html")


def json_response(value: object, status: int = HTTPStatus.OK) -> web.Response:
    """Return a response with ``value`` encoded as JSON by msgspec."""
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")


async def read_body(request: web.Request, kind: type[_Body]) -> _Body:
    """Return the request's JSON body, decoded as ``kind``.

    Raises :class:`UserError` if the body does not match the type, HTTP 400 if it is not JSON, and HTTP 415 for another
    media type.
    """
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="Send the body as application/json.")
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except msgspec.ValidationError as error:
        raise UserError(f"The body is invalid: {error}") from error
    except msgspec.DecodeError as error:
        raise web.HTTPBadRequest(text=f"The body is not valid JSON: {error}") from error


async def serve_static_file(request: web.Request) -> web.Response:
    """Return the static file with the ``path`` in the URL, compressed with gzip if that saves bytes and is accepted."""
    name = request.match_info["path"]
    if name not in _STATIC_FILES:
        raise web.HTTPNotFound
    content, compressed, media_type, etag = await asyncio.to_thread(_load_static_file, name)
    headers = {hdrs.CACHE_CONTROL: "public, no-cache", hdrs.ETAG: f'"{etag}"', hdrs.VARY: hdrs.ACCEPT_ENCODING}
    if any(tag.value == etag for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    if len(compressed) < len(content) and "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, ""):
        content = compressed
        headers[hdrs.CONTENT_ENCODING] = "gzip"
    return web.Response(body=content, content_type=media_type, headers=headers)


@cache
def _load_static_file(name: str) -> tuple[bytes, bytes, str, str]:
    """Return a file's content, the same content compressed with gzip, the media type, and the entity tag.

    If the file's type is not worth compressing, both contents are uncompressed.
    """
    content = _STATIC_FILES[name].read_bytes()
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    compressed = gzip.compress(content, 9, mtime=0) if media_type.startswith(_COMPRESSED_TYPES) else content
    return content, compressed, media_type, hashlib.sha256(content).hexdigest()[:16]
