"""Audit middleware: writes an entry to the audit log for every change.

An entry is begun before the change is made and completed with its outcome afterwards. After a crash, only the outcome
can therefore be missing, not the attempt.
"""

import secrets
import time
from typing import Final

import msgspec
import structlog
from aiohttp import web

from service.console.auth.middleware import ACCESS, SAFE_METHODS, WITHOUT_STORE, Handler
from service.console.auth.roles import Permission
from service.console.error_responses import status_of
from service.console.rendering import PRINCIPAL, STORE, local_path
from service.errors import CoronetError, StoreUnavailable
from service.net.http_server import client_of
from service.store.console.audit import AuditedAction

AUDIT_DETAIL: Final = web.RequestKey("audit detail", str)
"""Set by handlers: what the entry says besides the action and the path, for example the new value or a number."""

_MAX_DETAIL_CHARS = 500

log = structlog.get_logger(__name__)


@web.middleware
async def audit_changes(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Write an audit entry around every changing request; the handler's docstring names the action.

    Requests that only read are not audited, even if they are POST requests, nor are handlers that work without the
    store.
    """
    principal = request.get(PRINCIPAL)
    access = request.app[ACCESS].get(request.match_info.handler)
    only_reads = request.method in SAFE_METHODS or (isinstance(access, Permission) and access.scope.endswith(":read"))
    if principal is None or only_reads or request.match_info.handler in request.app[WITHOUT_STORE]:
        return await handler(request)
    summary = (request.match_info.handler.__doc__ or "").strip().partition("\n")[0]
    entry_id, entry = secrets.token_hex(8), _make_entry(request, principal.name, principal.key, summary)
    await request.app[STORE].audit_log.begin(entry_id, entry)
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
        detail = request.get(AUDIT_DETAIL, "")[:_MAX_DETAIL_CHARS]
        try:
            await request.app[STORE].audit_log.end(
                entry_id, msgspec.structs.replace(entry, status=status, detail=detail)
            )
        except StoreUnavailable as error:
            log.warning("audit entry left incomplete", action=entry.action, on=entry.on, error=str(error))
    return response


async def record_action(request: web.Request, by: str, action: str, key: str = "") -> None:
    """Write a completed audit entry for an action that the middleware does not cover.

    Such an action happens before login, or makes the store usable again. ``by`` is the account's name. ``key`` is the
    name of the API key; "" without a key.
    """
    entry_id, entry = secrets.token_hex(8), _make_entry(request, by, key, action)
    await request.app[STORE].audit_log.begin(entry_id, entry)
    await request.app[STORE].audit_log.end(entry_id, msgspec.structs.replace(entry, status=200))


def _make_entry(request: web.Request, by: str, key: str, action: str) -> AuditedAction:
    return AuditedAction(time.time(), by, key, client_of(request).address, action, local_path(request))
