"""The Log page and its API operation, which show all changes made in the console and through its API."""

import msgspec
from aiohttp import web

from service.console.api.operations import CURSOR, LIMIT, Operations
from service.console.app_keys import STORE
from service.console.auth.permissions import admin_access
from service.console.page_rendering import render
from service.console.pagination import read_limit, read_log_cursor
from service.store.console.audit_log import AuditRecord

operation = OPERATIONS = Operations()


class AuditLogPage(msgspec.Struct, frozen=True):
    """One page of the audit log, newest entries first.

    ``next`` is the cursor of the next page; "" means that this is the last page.
    """

    items: tuple[AuditRecord, ...]
    next: str


@operation("GET", "/log", admin_access("access", "read"), 422, query=(CURSOR, LIMIT))
async def get_log(request: web.Request) -> AuditLogPage:
    """List changes made in the console and through its API, newest first."""
    entries, next_cursor = await request.app[STORE].audit_log.page(read_log_cursor(request), read_limit(request))
    return AuditLogPage(tuple(entries), next_cursor)


async def page(request: web.Request) -> web.Response:
    """Show a page of the audit log."""
    return render(request, "log.html", log=await get_log(request))
