"""A POST with an Idempotency-Key is carried out once, however often it is sent (draft-ietf-httpapi-idempotency-key).

The same key with another request is refused, and so is one whose first request is still under way. What failed
is not kept and can be sent again. Answers that hold a secret are not kept either, only that they were given.
"""

import hashlib
from http import HTTPStatus
from typing import Final

import structlog
from aiohttp import hdrs, web

from service.console.guard import API_PREFIX, WITHOUT_STORE, Handler
from service.console.site import STORE, VISITOR
from service.errors import StoreUnavailable, UserError
from service.store.repeats import Kept

HEADER: Final = "Idempotency-Key"
SHOWN_ONCE: Final = web.RequestKey("shown once", bool)
"""Set by handlers whose answer holds a secret."""

_REPLAYED = "Idempotency-Replayed"
_LONGEST_KEY = 255
_MOST_BYTES = 64 * 1024

log = structlog.get_logger(__name__)


@web.middleware
async def repeated(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Carry a request out, or answer it as before. What needs no store is carried out each time."""
    key, visitor = request.headers.get(HEADER), request.get(VISITOR)
    if key is None or visitor is None or request.method != hdrs.METH_POST or not request.path.startswith(API_PREFIX):
        return await handler(request)
    if request.match_info.handler in request.app[WITHOUT_STORE]:
        return await handler(request)
    if not 0 < len(key) <= _LONGEST_KEY or not key.isprintable():
        raise UserError(f"{HEADER}: 1 to {_LONGEST_KEY} printable characters.")
    asked = hashlib.sha256(request.path_qs.encode() + b"\n" + await request.read()).hexdigest()
    who = f"{visitor.name}/{visitor.key}"
    earlier = await request.app[STORE].repeats.begin(who, key, asked)
    if earlier is not None:
        return _again(earlier, asked)
    kept = None
    try:
        response = await handler(request)
        kept = _kept(request, response, asked)
    finally:
        await _end(request, who, key, kept)
    return response


def _again(earlier: Kept, asked: str) -> web.Response:
    if earlier.request != asked:
        raise UserError(f"This {HEADER} was sent with another request. Choose a new one for each request.")
    if not earlier.status:
        raise web.HTTPConflict(text="The first request with this key is still under way. Ask again in a moment.")
    if not earlier.media_type and earlier.status != HTTPStatus.NO_CONTENT:
        raise web.HTTPConflict(text="That was done, and its answer is not kept: it held a secret, or was too long.")
    media_type = earlier.media_type or None
    response = web.Response(status=earlier.status, body=earlier.body, content_type=media_type)
    response.headers[_REPLAYED] = "true"
    if earlier.location:
        response.headers[hdrs.LOCATION] = earlier.location
    return response


def _kept(request: web.Request, response: web.StreamResponse, asked: str) -> Kept | None:
    if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return None
    body = response.body if isinstance(response, web.Response) else None
    if request.get(SHOWN_ONCE) or not isinstance(body, bytes) or len(body) > _MOST_BYTES:
        return Kept(asked, response.status)
    return Kept(asked, response.status, response.content_type, response.headers.get(hdrs.LOCATION, ""), body)


async def _end(request: web.Request, who: str, key: str, kept: Kept | None) -> None:
    try:
        await request.app[STORE].repeats.end(who, key, kept)
    except StoreUnavailable as error:
        log.warning("an answer is not kept for when it is asked for again", path=request.path, error=str(error))
