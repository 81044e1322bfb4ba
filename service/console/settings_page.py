"""The page Settings: one's own password, sessions and API keys; for admins the accounts of all."""

from typing import Final

import msgspec
from aiohttp import web

from service.console import accounts, holders
from service.console.access import SCOPES
from service.console.api_people import DAY_S, Invitation
from service.console.audited import DETAIL
from service.console.failures import in_plain_words, status_of
from service.console.login import link_to, logged_in, new_password
from service.console.passwords import SHORTEST
from service.console.site import CLOCK, STORE, VISITOR, render
from service.errors import CoronetError, StoreUnavailable, UserError
from service.store.accounts import Role

_DONE: Final = {
    "password": "Your password is changed. All your other sessions are over.",
    "session": "The session is over.",
    "zone": "Times are shown by your clock now.",
    "key": "The key opens nothing any more.",
    "role": "The role is changed.",
    "removed": "The account is removed; its sessions and keys are over.",
}


async def page(request: web.Request) -> web.Response:
    """Show them."""
    return await _page(request)


async def set_password(request: web.Request) -> web.Response:
    """Change one's own password; all other sessions are over."""
    form = await request.post()
    present, wanted, again = (str(form.get(field, "")) for field in ("present", "wanted", "again"))
    try:
        account = await new_password(request, present, wanted, again)
    except CoronetError as error:
        return await _refused(request, error)
    return await logged_in(request, request[VISITOR].name, account, "/settings?done=password")


async def set_zone(request: web.Request) -> web.Response:
    """Choose by the clocks of which zone one is shown times."""
    form = await request.post()
    words = str(form.get("browsers") or form.get("zone", "")).strip()
    try:
        request[DETAIL] = await accounts.set_zone(request.app[STORE], request[VISITOR].name, words)
    except CoronetError as error:
        return await _refused(request, error)
    raise web.HTTPSeeOther("/settings?done=zone")


async def end_session(request: web.Request) -> web.Response:
    """End a session."""
    await holders.end_session(request.app[STORE], request[VISITOR], request.match_info["session"])
    raise web.HTTPSeeOther("/settings?done=session")


async def make_key(request: web.Request) -> web.Response:
    """Make an API key of one's own account, and show it once."""
    form = await request.post()
    name, scopes = str(form.get("name", "")).strip(), tuple(str(scope) for scope in form.getall("scope", ()))
    request[DETAIL] = f"{name}: {' '.join(scopes)}"
    now_s = request.app[CLOCK].wall_s()
    try:
        key, token = await holders.make_key(request.app[STORE], request[VISITOR], name, scopes, now_s)
    except CoronetError as error:
        return await _refused(request, error)
    what = f"The API key “{key.name}”. Send it as “Authorization: Bearer …”."
    return await _page(request, secret=token, secret_words=what)


async def revoke_key(request: web.Request) -> web.Response:
    """Revoke an API key."""
    await holders.revoke_key(request.app[STORE], request[VISITOR], request.match_info["key"])
    raise web.HTTPSeeOther("/settings?done=key")


async def make_invitation(request: web.Request) -> web.Response:
    """Make an invitation to the bot, and show its code once."""
    form = await request.post()
    uses, days = str(form.get("uses", "")), str(form.get("days", ""))
    request[DETAIL] = f"{uses} times, {days} days"
    try:
        invitation = msgspec.convert({"uses": uses, "days": days}, Invitation, strict=False)
    except msgspec.ValidationError:
        return await _refused(request, UserError("Say for how many people it is good, and for how many days."))
    code = await request.app[STORE].invites.create(invitation.uses, invitation.days * DAY_S)
    what = "The invitation. Whoever sends this to the bot may use it."
    return await _page(request, secret=f"invite {code}", secret_words=what)


async def make_account(request: web.Request) -> web.Response:
    """Make an account, and show the link with which its holder chooses a password."""
    form = await request.post()
    name = str(form.get("name", "")).strip()
    request[DETAIL] = f"{name}: {form.get('role', '')}"
    try:
        token = await accounts.add(
            request.app[STORE], request[VISITOR], name, _role(form.get("role")), request.app[CLOCK].wall_s()
        )
    except CoronetError as error:
        return await _refused(request, error)
    return await _page(request, secret=link_to(request, token), secret_words=_link_words(name))


async def make_link(request: web.Request) -> web.Response:
    """Make a link with which an account's holder chooses a new password."""
    name = request.match_info["name"]
    try:
        token = await accounts.invite(request.app[STORE], request[VISITOR], name)
    except CoronetError as error:
        return await _refused(request, error)
    return await _page(request, secret=link_to(request, token), secret_words=_link_words(name))


async def set_role(request: web.Request) -> web.Response:
    """Give an account another role, from its next request on."""
    try:
        role = _role((await request.post()).get("role"))
        request[DETAIL] = role
        await accounts.set_role(request.app[STORE], request[VISITOR], request.match_info["name"], role)
    except CoronetError as error:
        return await _refused(request, error)
    raise web.HTTPSeeOther("/settings?done=role#accounts")


async def remove_account(request: web.Request) -> web.Response:
    """Remove an account; its sessions and API keys are over."""
    try:
        await accounts.remove(request.app[STORE], request[VISITOR], request.match_info["name"])
    except CoronetError as error:
        return await _refused(request, error)
    raise web.HTTPSeeOther("/settings?done=removed#accounts")


async def _refused(request: web.Request, error: CoronetError) -> web.Response:
    if isinstance(error, StoreUnavailable):
        raise error
    return await _page(request, status_of(error), error=in_plain_words(error))


async def _page(
    request: web.Request, status: int = 200, *, error: str = "", secret: str = "", secret_words: str = ""
) -> web.Response:
    store, visitor = request.app[STORE], request[VISITOR]
    held = await store.accounts.all() if visitor.role is Role.ADMIN else {}
    return render(
        request,
        "settings.html",
        status,
        error=error,
        done=_DONE.get(request.query.get("done", ""), ""),
        secret=secret,
        secret_words=secret_words,
        role=visitor.role,
        chosen_zone=visitor.zone,
        roles=list(Role),
        scopes=SCOPES,
        shortest=SHORTEST,
        sessions=await holders.sessions(store, visitor),
        keys=await holders.keys(store, visitor),
        accounts=[accounts.viewed(name, account) for name, account in held.items()],
    )


def _role(value: object) -> Role:
    try:
        return Role(str(value))
    except ValueError:
        raise UserError(f"Choose a role: {', '.join(Role)}.") from None


def _link_words(name: str) -> str:
    return (
        f"Pass this link on to {name}: it works once, within a week, and lets them choose a password. "
        "Links made before it work no more."
    )
