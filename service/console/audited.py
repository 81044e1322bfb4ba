"""Every change that somebody makes is noted in the audit log, with how it ended."""

import secrets
from typing import Final

import msgspec
import structlog
from aiohttp import web

from service.console.failures import status_of
from service.console.guard import CHANGES_NOTHING, NEEDS, WITHOUT_STORE, Handler
from service.console.site import CLOCK, STORE, VISITOR
from service.errors import CoronetError, StoreUnavailable
from service.net.http_server import client_of
from service.store.audit import Deed

DETAIL: Final = web.RequestKey("detail", str)
"""What a handler has to say of a change besides what it is and where: the new value, how many."""

_LONGEST = 500

log = structlog.get_logger(__name__)


@web.middleware
async def audited(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Note what is about to be changed, change it, and note how that ended; not of what is done without the store."""
    visitor = request.get(VISITOR)
    if visitor is None or request.method in CHANGES_NOTHING or _only_reads(request) or _needs_no_store(request):
        return await handler(request)
    deed = Deed(
        request.app[CLOCK].wall_s(),
        visitor.name,
        visitor.key,
        client_of(request).address,
        _sentence(request),
        request.path,
    )
    note = secrets.token_hex(8)
    await request.app[STORE].audit.begin(note, deed)
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
        await _end(request, note, msgspec.structs.replace(deed, status=status))
    return response


async def record(request: web.Request, by: str, action: str, key: str = "") -> None:
    """Log what somebody did who was not logged in before, or whose deed could not be noted before it was done."""
    now_s = request.app[CLOCK].wall_s()
    deed = Deed(now_s, by, key, client_of(request).address, action, request.path, 200)
    note = secrets.token_hex(8)
    await request.app[STORE].audit.begin(note, deed)
    await request.app[STORE].audit.end(note, deed)


async def _end(request: web.Request, note: str, deed: Deed) -> None:
    detail = request.get(DETAIL, "")[:_LONGEST]
    try:
        await request.app[STORE].audit.end(note, msgspec.structs.replace(deed, detail=detail))
    except StoreUnavailable as error:
        log.warning("how it ended is not in the audit log", action=deed.action, on=deed.on, error=str(error))


def _only_reads(request: web.Request) -> bool:
    need = request.app[NEEDS].get(request.match_info.handler)
    return need is not None and need.scope.endswith(":read")


def _needs_no_store(request: web.Request) -> bool:
    return request.match_info.handler in request.app[WITHOUT_STORE]


def _sentence(request: web.Request) -> str:
    return (request.match_info.handler.__doc__ or "").strip().partition("\n")[0]
