"""Acceptance of a store that has lost data or belongs to another fleet.

Programs refuse to use such a store until an admin accepts it.
"""

from aiohttp import web

from service.console.api.operations import ActionResult, Operations
from service.console.app_keys import PRINCIPAL, STORE
from service.console.auth.permissions import admin_access
from service.console.middleware.audit_recorder import record_action

operation = OPERATIONS = Operations()


@operation("POST", "/store/accept", admin_access("fleet"), without_store=True)
async def accept_store(request: web.Request) -> ActionResult:
    """Accept the store as it is, although it has lost data or belongs to another fleet."""
    principal = request[PRINCIPAL]
    await request.app[STORE].identity.accept()
    await record_action(request, principal.name, "Accept the store as it is.", principal.key)
    return ActionResult("The store has been accepted. All programs continue with its data within a few seconds.")
