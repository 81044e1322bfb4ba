"""The page Settings with a visitor's own password, sessions and keys, accounts of all for admins, and the audit log.

The same operations are in the API.
"""

from contextlib import suppress
from typing import Annotated, Final

import msgspec
from aiohttp import web

from service.console.audit_middleware import DETAIL, SHOWN_ONCE
from service.console.auth import accounts
from service.console.auth.accounts import SHORTEST, AccountView
from service.console.auth.login import link_to, logged_in, new_password
from service.console.auth.roles import SCOPES, Need, look, rule
from service.console.error_responses import shown_on
from service.console.openapi import CURSOR, LIMIT, Operations
from service.console.pages.people import Invitation, invite
from service.console.rendering import CLOCK, STORE, VISITOR, form_of, limit, log_cursor, render, zone_of
from service.errors import PermissionDenied, UserError
from service.store.console.accounts import Role, Session
from service.store.console.audit import AuditRecord

_DEEDS: Final = 50
_LONGEST_KEY_NAME: Final = 64
_MOST_KEYS: Final = 50
"""Of one account."""
_OWN: Final = Need(Role.VIEWER, "access:write")
_DONE: Final = {
    "password": "Your password is changed. All your other sessions are over.",
    "session": "The session is over.",
    "zone": "Times are shown by your clock now.",
    "key": "The key opens nothing any more.",
    "role": "The role is changed.",
    "removed": "The account is removed; its sessions and keys are over.",
}

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]

operation = OPERATIONS = Operations()


class KeyView(msgspec.Struct, frozen=True):
    """An API key; nobody can see it again. Times are Unix s, ``used_s`` to the minute, null if it never was."""

    id: str
    name: str
    account: str
    scopes: tuple[str, ...]
    created_s: float
    used_s: float | None


class Me(msgspec.Struct, frozen=True):
    """Who is asking, by which API key if by one, and the scopes that bound it (null: nothing does).

    ``zone`` is the time zone by whose clocks pages show them times.
    """

    account: str
    role: Role
    key: str
    scopes: tuple[str, ...] | None
    zone: str


class SetZone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A time zone, by its name (``Europe/Berlin``) or a large city in it."""

    zone: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class Accounts(msgspec.Struct, frozen=True):
    """All accounts by name."""

    items: tuple[AccountView, ...]


class AddAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new account's name and role."""

    name: Annotated[str, msgspec.Meta(pattern=f"^{accounts.NAME}$")]
    role: Role


class SetRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An account's role."""

    role: Role


class PasswordLink(msgspec.Struct, frozen=True):
    """Where an account's holder chooses a password, once and within a week. It is shown only here: pass it on.

    It is the account's only link: older ones are over, and so is this one when the account gets another password or
    is removed.
    """

    link: str


class ChangePassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The password one has, and the one that one wants."""

    present: _Text
    wanted: _Text


class OpenSessions(msgspec.Struct, frozen=True):
    """Sessions that are open, newest first; ``id`` ends them."""

    items: tuple[Session, ...]


class ApiKeys(msgspec.Struct, frozen=True):
    """API keys, newest first."""

    items: tuple[KeyView, ...]


class AddKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name to know the key by, and what its holder may do: scopes like ``channels:read``."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    scopes: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=20)]


class NewKey(msgspec.Struct, frozen=True):
    """A new key. ``token`` is what has to be sent, and is shown only here."""

    key: KeyView
    token: str


class Deeds(msgspec.Struct, frozen=True):
    """What was done, newest first; ``next`` is the cursor of what was done before, "" at the end."""

    items: tuple[AuditRecord, ...]
    next: str


@operation("GET", "/me", Need(Role.VIEWER))
async def get_me(request: web.Request) -> Me:
    """Who is asking, and what they may do."""
    visitor = request[VISITOR]
    scopes = None if visitor.scopes is None else tuple(sorted(visitor.scopes))
    return Me(visitor.name, visitor.role, visitor.key, scopes, zone_of(request))


@operation("PUT", "/me/password", _OWN, 429)
async def put_my_password(request: web.Request, wanted: ChangePassword) -> None:
    """Change one's own password; all sessions are over, and API keys stay."""
    await new_password(request, wanted.present, wanted.wanted, wanted.wanted)


@operation("PUT", "/me/zone", _OWN, 404)
async def put_my_zone(request: web.Request, wanted: SetZone) -> None:
    """Choose by the clocks of which zone pages show one times."""
    request[DETAIL] = await accounts.set_zone(request.app[STORE], request[VISITOR].name, wanted.zone)


@operation("GET", "/accounts", rule("access", "read"))
async def get_accounts(request: web.Request) -> Accounts:
    """All accounts."""
    held = await request.app[STORE].accounts.all()
    return Accounts(tuple(accounts.viewed(name, account) for name, account in held.items()))


@operation("POST", "/accounts", rule("access"), status=201)
async def post_account(request: web.Request, wanted: AddAccount) -> PasswordLink:
    """Make an account, and a link with which its holder chooses a password.

    A key makes none that may do more than its scopes, and no admin.
    """
    request[DETAIL] = f"{wanted.name}: {wanted.role}"
    request[SHOWN_ONCE] = True
    now_s = request.app[CLOCK].wall_s()
    token = await accounts.add(request.app[STORE], request[VISITOR], wanted.name, wanted.role, now_s)
    return PasswordLink(link_to(request, token))


@operation("PATCH", "/accounts/{name}", rule("access"), 404)
async def patch_account(request: web.Request, wanted: SetRole) -> AccountView:
    """Give an account another role, from its next request on.

    A key neither gives nor takes what its scopes do not cover, nor the role of admins.
    """
    request[DETAIL] = wanted.role
    return await accounts.set_role(request.app[STORE], request[VISITOR], request.match_info["name"], wanted.role)


@operation("DELETE", "/accounts/{name}", rule("access"), 404, 422)
async def delete_account(request: web.Request) -> None:
    """Remove an account; its sessions, API keys and password link are over.

    A key removes none that may do more than its scopes, and no admin.
    """
    await accounts.remove(request.app[STORE], request[VISITOR], request.match_info["name"])


@operation("POST", "/accounts/{name}/link", rule("access"), 404)
async def post_account_link(request: web.Request) -> PasswordLink:
    """Make a link with which an account's holder chooses a new password; an older link is over.

    A key makes none for an account that may do more than its scopes, and none for admins.
    """
    request[SHOWN_ONCE] = True
    token = await accounts.invite(request.app[STORE], request[VISITOR], request.match_info["name"])
    return PasswordLink(link_to(request, token))


@operation("GET", "/sessions", look("access"))
async def get_sessions(request: web.Request) -> OpenSessions:
    """Open sessions: one's own, or to an admin those of all."""
    found = await request.app[STORE].sessions.all()
    return OpenSessions(tuple(each for each in found if _may_see(request, each.account)))


@operation("DELETE", "/sessions/{session}", _OWN, 404)
async def delete_session(request: web.Request) -> None:
    """End a session.

    A key ends none of other accounts that may do more than its scopes, and none of other admins.
    """
    wanted = request.match_info["session"]
    owner = next((each.account for each in (await get_sessions(request)).items if each.id == wanted), None)
    if owner is None:
        raise web.HTTPNotFound(text="There is no such session. It may have ended by itself.")
    await _must_be_able_to_end(request, owner)
    await request.app[STORE].sessions.end(wanted)


@operation("GET", "/keys", look("access"))
async def get_keys(request: web.Request) -> ApiKeys:
    """API keys: one's own, or to an admin those of all."""
    held = await request.app[STORE].accounts.all()
    return ApiKeys(
        tuple(
            KeyView(key.id, key.name, key.account, key.scopes, key.created_s, used_s)
            for key, used_s in await request.app[STORE].api_keys.all()
            if _may_see(request, key.account)
            and key.account in held
            and held[key.account].created_s == key.account_since_s
        )
    )


@operation("POST", "/keys", _OWN, status=201)
async def post_key(request: web.Request, wanted: AddKey) -> NewKey:
    """Make an API key of one's own account."""
    request[DETAIL] = f"{wanted.name}: {' '.join(wanted.scopes)}"
    request[SHOWN_ONCE] = True
    store, visitor = request.app[STORE], request[VISITOR]
    unknown = [scope for scope in wanted.scopes if scope not in SCOPES]
    if unknown or not wanted.scopes:
        raise UserError(f"{unknown[0] if unknown else 'Nothing'} is no scope. There are: {', '.join(SCOPES)}.")
    if not 0 < len(wanted.name) <= _LONGEST_KEY_NAME or not wanted.name.isprintable():
        raise UserError(f"Give the key a name of at most {_LONGEST_KEY_NAME} characters, by which you know it again.")
    account = await store.accounts.get(visitor.name) if visitor.name else None
    if account is None:
        raise UserError("A key belongs to an account: log in to make one.")
    beyond = [scope for scope in wanted.scopes if not visitor.reaches(scope)]
    if beyond:
        raise UserError(f"The key you use has no scope {beyond[0]}, so it cannot make one that has.")
    if sum(key.account == visitor.name for key in (await get_keys(request)).items) >= _MOST_KEYS:
        raise UserError(f"An account has at most {_MOST_KEYS} keys. Revoke one that is not used any more.")
    scopes = tuple(scope for scope in SCOPES if scope in wanted.scopes)
    now_s = request.app[CLOCK].wall_s()
    key, token = await store.api_keys.make(wanted.name, (visitor.name, account), scopes, now_s)
    return NewKey(KeyView(key.id, key.name, key.account, key.scopes, key.created_s, None), token)


@operation("DELETE", "/keys/{key}", _OWN, 404)
async def delete_key(request: web.Request) -> None:
    """Revoke an API key.

    A key revokes none of other accounts that may do more than its scopes, and none of other admins.
    """
    wanted = request.match_info["key"]
    owner = next((each.account for each in (await get_keys(request)).items if each.id == wanted), None)
    if owner is None:
        raise web.HTTPNotFound(text="There is no such API key. It may have been revoked.")
    await _must_be_able_to_end(request, owner)
    await request.app[STORE].api_keys.revoke(wanted)


def _may_see(request: web.Request, account: str) -> bool:
    return request[VISITOR].role is Role.ADMIN or request[VISITOR].name == account


async def _must_be_able_to_end(request: web.Request, owner: str) -> None:
    """Raise :class:`PermissionDenied` if an API key tries to end sessions of an account with a higher role."""
    account, visitor = await request.app[STORE].accounts.get(owner), request[VISITOR]
    if account is not None and owner != visitor.name and not visitor.can_grant(account.role):
        raise PermissionDenied(
            "An API key ends no sessions and keys of other accounts that may do more than the key itself."
        )


@operation("GET", "/log", rule("access", "read"), 422, query=(CURSOR, LIMIT))
async def get_log(request: web.Request) -> Deeds:
    """What was done in the console and through its API, by whom."""
    deeds, following = await request.app[STORE].audit_log.page(log_cursor(request), limit(request, _DEEDS))
    return Deeds(tuple(deeds), following)


async def log_page(request: web.Request) -> web.Response:
    """Show deeds, newest first, a page at a time."""
    found = await get_log(request)
    first = not request.query.get("cursor")
    return render(request, "log.html", deeds=found.items, first=first, following=found.next)


async def page(
    request: web.Request, status: int = 200, *, error: str = "", secret: str = "", secret_words: str = ""
) -> web.Response:
    """Show a visitor's own settings, and all accounts to admins."""
    visitor = request[VISITOR]
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
        sessions=(await get_sessions(request)).items,
        keys=(await get_keys(request)).items,
        accounts=(await get_accounts(request)).items if visitor.role is Role.ADMIN else (),
    )


@shown_on(page)
async def set_password(request: web.Request) -> web.Response:
    """Change one's own password; all other sessions are over."""
    form = await request.post()
    present, wanted, again = (str(form.get(field, "")) for field in ("present", "wanted", "again"))
    account = await new_password(request, present, wanted, again)
    return await logged_in(request, request[VISITOR].name, account, "/settings?done=password")


@shown_on(page)
async def set_zone(request: web.Request) -> web.Response:
    """Choose by the clocks of which zone one is shown times."""
    form = await form_of(request)
    await put_my_zone(request, SetZone(form.get("browsers") or form.get("zone", "")))
    raise web.HTTPSeeOther("/settings?done=zone")


async def end_session(request: web.Request) -> web.Response:
    """End a session."""
    with suppress(web.HTTPNotFound):
        await delete_session(request)
    raise web.HTTPSeeOther("/settings?done=session")


@shown_on(page)
async def make_key(request: web.Request) -> web.Response:
    """Make an API key of one's own account, and show it once."""
    form = await request.post()
    scopes = tuple(str(scope) for scope in form.getall("scope", ()))
    made = await post_key(request, AddKey(str(form.get("name", "")).strip(), scopes))
    words = f"The API key “{made.key.name}”. Send it as “Authorization: Bearer …”."
    return await page(request, secret=made.token, secret_words=words)


async def revoke_key(request: web.Request) -> web.Response:
    """Revoke an API key."""
    with suppress(web.HTTPNotFound):
        await delete_key(request)
    raise web.HTTPSeeOther("/settings?done=key")


@shown_on(page)
async def make_invitation(request: web.Request) -> web.Response:
    """Make an invitation to the bot, and show its code once."""
    form = await form_of(request)
    uses, days = form.get("uses", ""), form.get("days", "")
    request[DETAIL] = f"{uses} times, {days} days"
    try:
        invitation = msgspec.convert({"uses": uses, "days": days}, Invitation, strict=False)
    except msgspec.ValidationError:
        raise UserError("Say for how many people it is good, and for how many days.") from None
    code = (await invite(request, invitation)).code
    words = "The invitation. Whoever sends this to the bot may use it."
    return await page(request, secret=f"invite {code}", secret_words=words)


@shown_on(page)
async def make_account(request: web.Request) -> web.Response:
    """Make an account, and show the link with which its holder chooses a password."""
    form = await form_of(request)
    name = form.get("name", "")
    request[DETAIL] = f"{name}: {form.get('role', '')}"
    made = await post_account(request, AddAccount(name, _role(form.get("role", ""))))
    return await page(request, secret=made.link, secret_words=_link_words(name))


@shown_on(page)
async def make_link(request: web.Request) -> web.Response:
    """Make a link with which an account's holder chooses a new password."""
    made = await post_account_link(request)
    return await page(request, secret=made.link, secret_words=_link_words(request.match_info["name"]))


@shown_on(page)
async def set_role(request: web.Request) -> web.Response:
    """Give an account another role, from its next request on."""
    await patch_account(request, SetRole(_role((await form_of(request)).get("role", ""))))
    raise web.HTTPSeeOther("/settings?done=role#accounts")


@shown_on(page)
async def remove_account(request: web.Request) -> web.Response:
    """Remove an account; its sessions and API keys are over."""
    await delete_account(request)
    raise web.HTTPSeeOther("/settings?done=removed#accounts")


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise UserError(f"Choose a role: {', '.join(Role)}.") from None


def _link_words(name: str) -> str:
    return (
        f"Pass this link on to {name}: it works once, within a week, and lets them choose a password. "
        "Links made before it work no more."
    )
