"""Our own files, compressed where that helps.

Pages are not: what they reflect of an address stands beside secrets, which could then be guessed by their sizes.
"""

import asyncio
import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from typing import Final

from aiohttp import hdrs, web

from service.console.site import STATIC

_PATHS: Final = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.is_file()}
_COMPRESSED: Final = ("text/", "application/javascript", "application/json", "image/svg+xml")


@dataclass(frozen=True)
class Asset:
    """A file as it is sent; ``smaller`` is it compressed by gzip, None if that does not help."""

    body: bytes
    smaller: bytes | None
    media_type: str
    tag: str


async def asset(request: web.Request) -> web.Response:
    """Send one of our own files."""
    name = request.match_info["path"]
    if name not in _PATHS:
        raise web.HTTPNotFound
    found = await asyncio.to_thread(_asset, name)
    headers = {hdrs.CACHE_CONTROL: "public, no-cache", hdrs.ETAG: f'"{found.tag}"', hdrs.VARY: hdrs.ACCEPT_ENCODING}
    if any(tag.value == found.tag for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    body = found.body
    if found.smaller is not None and "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, ""):
        body = found.smaller
        headers[hdrs.CONTENT_ENCODING] = "gzip"
    return web.Response(body=body, content_type=found.media_type, headers=headers)


@cache
def _asset(name: str) -> Asset:
    body = _PATHS[name].read_bytes()
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    smaller = gzip.compress(body, 9, mtime=0) if media_type.startswith(_COMPRESSED) else body
    tag = hashlib.sha256(body).hexdigest()[:16]
    return Asset(body, smaller if len(smaller) < len(body) else None, media_type, tag)
