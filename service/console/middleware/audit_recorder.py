"""The part of the audit log that writes an entry for every change.

An entry is begun before the change is made, and completed with the outcome afterwards. If the console crashes in
between, the entry still shows the attempt, and only its outcome is missing.
"""

import secrets
import time
from functools import wraps
from typing import Final

import msgspec
import structlog
from aiohttp import web

from service.console.app_keys import PRINCIPAL, STORE, local_path
from service.console.middleware.error_responses import status_of
from service.console.route_rules import Handler
from service.errors import CoronetError, StoreUnavailable
from service.net.http_server import client_of
from service.store.console.audit_log import AuditedAction

AUDIT_DETAIL: Final = web.RequestKey("audit detail", str)
"""Set by handlers: a detail for the entry besides the action and the path, for example the new value or a number."""

_MAX_DETAIL_CHARS = 500

log = structlog.get_logger(__name__)


def audit(handler: Handler) -> Handler:
    """Return a handler that calls ``handler`` and writes an audit entry for each request.

    The first line of ``handler``'s docstring names the action in the entry.
    """
    summary = (handler.__doc__ or "").strip().partition("\n")[0]

    @wraps(handler)
    async def handle(request: web.Request) -> web.StreamResponse:
        principal, audit_log = request[PRINCIPAL], request.app[STORE].audit_log
        entry_id, entry = secrets.token_hex(8), _make_entry(request, principal.name, principal.key, summary)
        await audit_log.begin(entry_id, entry)
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
                await audit_log.end(entry_id, msgspec.structs.replace(entry, status=status, detail=detail))
            except StoreUnavailable as error:
                log.warning(
                    "recording outcome of audited action failed", action=entry.action, target=entry.on, error=str(error)
                )
        return response

    return handle


async def record_action(request: web.Request, by: str, action: str, key: str = "") -> None:
    """Write an audit entry for an action that has succeeded, in a handler that :func:`audit` does not wrap.

    Such a handler serves requests from people who are not logged in, or makes an unusable store usable again.

    - ``by``: the name of the account that has performed the action.
    - ``action``: what was done, as the text to show in the audit log.
    - ``key``: the name of the API key with which the request was sent; "" if there was none.
    """
    entry_id, entry = secrets.token_hex(8), _make_entry(request, by, key, action)
    await request.app[STORE].audit_log.begin(entry_id, entry)
    await request.app[STORE].audit_log.end(entry_id, msgspec.structs.replace(entry, status=200))


def _make_entry(request: web.Request, by: str, key: str, action: str) -> AuditedAction:
    return AuditedAction(time.time(), by, key, client_of(request).address, action, local_path(request))
