"""Static files, with their compression, media types and cache headers.

The console compresses only static files and the API reference: see :mod:`service.console.page_rendering`.
"""

import asyncio
import gzip
import hashlib
import mimetypes
from functools import cache
from pathlib import Path
from typing import Final

from aiohttp import hdrs, web

_STATIC: Final = Path(__file__).parent / "static"
_STATIC_FILES: Final = {path.relative_to(_STATIC).as_posix(): path for path in _STATIC.rglob("*") if path.is_file()}
_COMPRESSED_TYPES: Final = ("text/", "application/javascript", "application/json", "image/svg+xml")


async def serve_static_file(request: web.Request) -> web.Response:
    """Send the static file named in the request's path, with gzip if the client accepts it and it saves bytes."""
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
    """Return (content, content compressed with gzip, media type, entity tag) of the static file ``name``.

    The second item is not compressed if files of this type are not worth compressing.
    """
    content = _STATIC_FILES[name].read_bytes()
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    compressed = gzip.compress(content, 9, mtime=0) if media_type.startswith(_COMPRESSED_TYPES) else content
    return content, compressed, media_type, hashlib.sha256(content).hexdigest()[:16]
