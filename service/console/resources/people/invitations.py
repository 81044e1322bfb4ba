"""Invitations to the bot: codes that admit people to a bot that serves only invited people."""

from typing import Annotated

import msgspec
from aiohttp import web

from service.console.api.operations import Operations
from service.console.app_keys import SETTINGS, STORE
from service.console.auth.permissions import write_access
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.resources.people.people import DAY_S, MAX_VALUE
from service.errors import UserError

operation = OPERATIONS = Operations()


class Invitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An invitation: how many people can use it, and for how many days it is valid."""

    uses: Annotated[int, msgspec.Meta(ge=1, le=MAX_VALUE)] = 1
    days: Annotated[float, msgspec.Meta(ge=0.01, le=3650)] = 14.0


class InvitationCode(msgspec.Struct, frozen=True):
    """The code of a new invitation. It is shown only once. Invited people send ``invite CODE`` to the bot."""

    code: str


@operation("POST", "/invitations", write_access("people"))
async def invite(request: web.Request, body: Invitation) -> InvitationCode:
    """Create an invitation, which admits people to the bot. Needs the setting who_may_use = "invited"."""
    who_may_use = request.app[SETTINGS].who_may_use
    if who_may_use != "invited":
        raise UserError(
            f'The setting who_may_use is "{who_may_use}", so an invitation would admit nobody. '
            'Set it to "invited" for the bots and the console, and restart them.'
        )
    request[AUDIT_DETAIL] = f"{body.uses} people, {body.days:g} days"
    return InvitationCode(await request.app[STORE].invitations.create(body.uses, body.days * DAY_S))
