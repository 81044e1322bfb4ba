"""Dead letters: messages whose delivery failed permanently, with the operations to queue them again or delete them."""

from typing import Final

import msgspec
from aiohttp import web

from service.console.api.operations import CURSOR, LIMIT, Operations
from service.console.app_keys import STORE
from service.console.auth.permissions import read_access, write_access
from service.console.pagination import read_limit, read_log_cursor
from service.model import UserId

operation = OPERATIONS = Operations()

_NO_LETTER: Final = "There is no such dead letter. It may have been queued again or deleted."


class DeadLetterView(msgspec.Struct, frozen=True):
    """A message whose delivery failed permanently at ``at_s`` (Unix s) for the reason ``why``.

    ``jid`` is the recipient's address, or "" if the recipient has been deleted. ``items`` is the number of
    notifications in the message. ``readable`` is false if the message is corrupt, so that it can only be deleted.
    """

    id: str
    user: UserId
    jid: str
    at_s: float
    why: str
    items: int
    readable: bool


class DeadLetterPage(msgspec.Struct, frozen=True):
    """One page of the list of dead letters, newest first.

    ``next`` is the cursor of the next page; "" means that this is the last page.
    """

    items: tuple[DeadLetterView, ...]
    next: str


@operation("GET", "/dead-letters", read_access("delivery"), 422, query=(CURSOR, LIMIT))
async def get_dead_letters(request: web.Request) -> DeadLetterPage:
    """List dead letters, newest first."""
    store = request.app[STORE]
    letters, next_cursor = await store.dead_letters.page(read_log_cursor(request), read_limit(request))
    jids = await store.people.jids([letter.user for letter in letters])
    views = (
        DeadLetterView(each.id, each.user, jid, each.at_s, each.why, len(each.items), each.readable)
        for each, jid in zip(letters, jids, strict=True)
    )
    return DeadLetterPage(tuple(views), next_cursor)


@operation("POST", "/dead-letters/{letter}/requeue", write_access("delivery"), 404)
async def requeue_dead_letter(request: web.Request) -> None:
    """Queue the content of a dead letter for delivery again."""
    if not await request.app[STORE].dead_letters.requeue(request.match_info["letter"]):
        raise web.HTTPNotFound(text=_NO_LETTER)


@operation("DELETE", "/dead-letters/{letter}", write_access("delivery"), 404)
async def delete_dead_letter(request: web.Request) -> None:
    """Delete a dead letter."""
    if not await request.app[STORE].dead_letters.drop(request.match_info["letter"]):
        raise web.HTTPNotFound(text=_NO_LETTER)
