"""Middleware around changes: the audit log, and POST requests that are carried out once (Idempotency-Key).

Every change is noted before it is made, and then how it ended. The same Idempotency-Key with another request is
refused, and so is one whose first request is still under way (draft-ietf-httpapi-idempotency-key). Failed requests are
not kept and can be sent again. Of responses that hold a secret only the fact is kept.
"""

import hashlib
import secrets
from http import HTTPStatus
from typing import Final

import msgspec
import structlog
from aiohttp import hdrs, web

from service.console.auth.middleware import API_PREFIX, CHANGES_NOTHING, NEEDS, WITHOUT_STORE, Handler
from service.console.error_responses import status_of
from service.console.rendering import CLOCK, STORE, VISITOR
from service.errors import CoronetError, StoreUnavailable, UserError
from service.net.http_server import client_of
from service.store.console.audit import AuditedAction, StoredResponse

DETAIL: Final = web.RequestKey("detail", str)
"""What a handler has to say of a change besides what it is and where: the new value, how many."""
SHOWN_ONCE: Final = web.RequestKey("shown once", bool)
"""Set by handlers whose answer holds a secret."""

_LONGEST_DETAIL = 500
_KEY_HEADER: Final = "Idempotency-Key"
_REPLAYED = "Idempotency-Replayed"
_LONGEST_KEY = 255
_LARGEST_KEPT_BYTES = 64 * 1024

log = structlog.get_logger(__name__)


@web.middleware
async def audited(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Note what is about to be changed, change it, and note how that ended; not of what is done without the store."""
    visitor = request.get(VISITOR)
    need = request.app[NEEDS].get(request.match_info.handler)
    only_reads = request.method in CHANGES_NOTHING or (need is not None and need.scope.endswith(":read"))
    if visitor is None or only_reads or request.match_info.handler in request.app[WITHOUT_STORE]:
        return await handler(request)
    summary = (request.match_info.handler.__doc__ or "").strip().partition("\n")[0]
    deed = AuditedAction(
        request.app[CLOCK].wall_s(),
        visitor.name,
        visitor.key,
        client_of(request).address,
        summary,
        request.path,
    )
    note = secrets.token_hex(8)
    await request.app[STORE].audit_log.begin(note, deed)
    status = 500
    try:
        response = await handler(request)
        status = response.status
    except web.HTTPException as error:
        status = error.status
        raise
    except CoronetError as error:
        status = status_of(error)
        raise
    finally:
        await _end_deed(request, note, msgspec.structs.replace(deed, status=status))
    return response


async def record(request: web.Request, by: str, action: str, key: str = "") -> None:
    """Log what somebody did who was not logged in before, or whose deed could not be noted before it was done."""
    now_s = request.app[CLOCK].wall_s()
    deed = AuditedAction(now_s, by, key, client_of(request).address, action, request.path, 200)
    note = secrets.token_hex(8)
    await request.app[STORE].audit_log.begin(note, deed)
    await request.app[STORE].audit_log.end(note, deed)


async def _end_deed(request: web.Request, note: str, deed: AuditedAction) -> None:
    detail = request.get(DETAIL, "")[:_LONGEST_DETAIL]
    try:
        await request.app[STORE].audit_log.end(note, msgspec.structs.replace(deed, detail=detail))
    except StoreUnavailable as error:
        log.warning("how it ended is not in the audit log", action=deed.action, on=deed.on, error=str(error))


@web.middleware
async def repeated(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Carry a request out, or answer it as before. What needs no store is carried out each time."""
    key, visitor = request.headers.get(_KEY_HEADER), request.get(VISITOR)
    if key is None or visitor is None or request.method != hdrs.METH_POST or not request.path.startswith(API_PREFIX):
        return await handler(request)
    if request.match_info.handler in request.app[WITHOUT_STORE]:
        return await handler(request)
    if not 0 < len(key) <= _LONGEST_KEY or not key.isprintable():
        raise UserError(f"{_KEY_HEADER}: 1 to {_LONGEST_KEY} printable characters.")
    asked = hashlib.sha256(request.path_qs.encode() + b"\n" + await request.read()).hexdigest()
    who = f"{visitor.name}/{visitor.key}"
    earlier = await request.app[STORE].idempotency.begin(who, key, asked)
    if earlier is not None:
        return _again(earlier, asked)
    kept = None
    try:
        response = await handler(request)
        kept = _kept(request, response, asked)
    finally:
        await _end_repeat(request, who, key, kept)
    return response


def _again(earlier: StoredResponse, asked: str) -> web.Response:
    if earlier.request != asked:
        raise UserError(f"This {_KEY_HEADER} was sent with another request. Choose a new one for each request.")
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


def _kept(request: web.Request, response: web.StreamResponse, asked: str) -> StoredResponse | None:
    if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return None
    body = response.body if isinstance(response, web.Response) else None
    if request.get(SHOWN_ONCE) or not isinstance(body, bytes) or len(body) > _LARGEST_KEPT_BYTES:
        return StoredResponse(asked, response.status)
    return StoredResponse(asked, response.status, response.content_type, response.headers.get(hdrs.LOCATION, ""), body)


async def _end_repeat(request: web.Request, who: str, key: str, kept: StoredResponse | None) -> None:
    try:
        await request.app[STORE].idempotency.end(who, key, kept)
    except StoreUnavailable as error:
        log.warning("an answer is not kept for when it is asked for again", path=request.path, error=str(error))
