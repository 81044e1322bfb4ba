"""Login sessions: the API operations that list and end them."""

import msgspec
from aiohttp import web

from service.console.api.operations import Operations
from service.console.app_keys import STORE
from service.console.auth.permissions import read_access
from service.console.resources.access.ownership_rules import OWN_ACCESS, can_see, check_can_end
from service.store.console.sessions import Session

operation = OPERATIONS = Operations()


class OpenSessions(msgspec.Struct, frozen=True):
    """The open sessions, newest first. The ``id`` of a session is used to end it."""

    items: tuple[Session, ...]


@operation("GET", "/sessions", read_access("access"))
async def get_sessions(request: web.Request) -> OpenSessions:
    """List your open sessions; admins see those of all accounts."""
    sessions = await request.app[STORE].sessions.all()
    return OpenSessions(tuple(each for each in sessions if can_see(request, each.account)))


@operation("DELETE", "/sessions/{session}", OWN_ACCESS, 404)
async def delete_session(request: web.Request) -> None:
    """End a session.

    An API key cannot end sessions of other admins, or of other accounts with more rights than its scopes.
    """
    session_id, sessions = request.match_info["session"], (await get_sessions(request)).items
    owner = next((each.account for each in sessions if each.id == session_id), None)
    await check_can_end(request, owner, "There is no such session. It may have expired.")
    await request.app[STORE].sessions.end(session_id)
