"""The API's part about who may do what: accounts, sessions, API keys, and the log of what they did."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from aiohttp import web

from service.console import accounts, holders
from service.console.access import Need, look, rule
from service.console.accounts import AccountView
from service.console.audited import DETAIL
from service.console.holders import KeyView
from service.console.login import link_to, new_password
from service.console.openapi import BODY, CURSOR, LIMIT, Operation, Parameter
from service.console.repeated import SHOWN_ONCE
from service.console.site import CLOCK, STORE, VISITOR, zone_of
from service.console.wire import answer, body, limit, place
from service.store.accounts import Role
from service.store.audit import Noted
from service.store.sessions import Session

_DEEDS = 50

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


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

    items: tuple[Noted, ...]
    next: str


async def get_me(request: web.Request) -> web.Response:
    """Who is asking, and what they may do."""
    visitor = request[VISITOR]
    scopes = None if visitor.scopes is None else tuple(sorted(visitor.scopes))
    return answer(Me(visitor.name, visitor.role, visitor.key, scopes, zone_of(request)))


async def put_my_zone(request: web.Request) -> web.Response:
    """Choose by the clocks of which zone pages show one times."""
    wanted = await body(request, SetZone)
    request[DETAIL] = await accounts.set_zone(request.app[STORE], request[VISITOR].name, wanted.zone)
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def put_my_password(request: web.Request) -> web.Response:
    """Change one's own password; all sessions are over, and API keys stay."""
    wanted = await body(request, ChangePassword)
    await new_password(request, wanted.present, wanted.wanted, wanted.wanted)
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def get_accounts(request: web.Request) -> web.Response:
    """All accounts."""
    held = await request.app[STORE].accounts.all()
    return answer(Accounts(tuple(accounts.viewed(name, account) for name, account in held.items())))


async def post_account(request: web.Request) -> web.Response:
    """Make an account, and a link with which its holder chooses a password.

    A key makes none that may do more than its scopes, and no admin.
    """
    wanted = await body(request, AddAccount)
    request[DETAIL] = f"{wanted.name}: {wanted.role}"
    request[SHOWN_ONCE] = True
    token = await accounts.add(
        request.app[STORE], request[VISITOR], wanted.name, wanted.role, request.app[CLOCK].wall_s()
    )
    return answer(PasswordLink(link_to(request, token)), HTTPStatus.CREATED)


async def patch_account(request: web.Request) -> web.Response:
    """Give an account another role, from its next request on.

    A key neither gives nor takes what its scopes do not cover, nor the role of admins.
    """
    wanted = await body(request, SetRole)
    request[DETAIL] = wanted.role
    return answer(
        await accounts.set_role(request.app[STORE], request[VISITOR], request.match_info["name"], wanted.role)
    )


async def delete_account(request: web.Request) -> web.Response:
    """Remove an account; its sessions, API keys and password link are over.

    A key removes none that may do more than its scopes, and no admin.
    """
    await accounts.remove(request.app[STORE], request[VISITOR], request.match_info["name"])
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def post_account_link(request: web.Request) -> web.Response:
    """Make a link with which an account's holder chooses a new password; an older link is over.

    A key makes none for an account that may do more than its scopes, and none for admins.
    """
    request[SHOWN_ONCE] = True
    token = await accounts.invite(request.app[STORE], request[VISITOR], request.match_info["name"])
    return answer(PasswordLink(link_to(request, token)))


async def get_sessions(request: web.Request) -> web.Response:
    """Open sessions: one's own, or to an admin those of all."""
    return answer(OpenSessions(await holders.sessions(request.app[STORE], request[VISITOR])))


async def delete_session(request: web.Request) -> web.Response:
    """End a session.

    A key ends none of other accounts that may do more than its scopes, and none of other admins.
    """
    if not await holders.end_session(request.app[STORE], request[VISITOR], request.match_info["session"]):
        raise web.HTTPNotFound(text="There is no such session. It may have ended by itself.")
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def get_keys(request: web.Request) -> web.Response:
    """API keys: one's own, or to an admin those of all."""
    return answer(ApiKeys(await holders.keys(request.app[STORE], request[VISITOR])))


async def post_key(request: web.Request) -> web.Response:
    """Make an API key of one's own account."""
    wanted = await body(request, AddKey)
    request[DETAIL] = f"{wanted.name}: {' '.join(wanted.scopes)}"
    request[SHOWN_ONCE] = True
    now_s = request.app[CLOCK].wall_s()
    key, token = await holders.make_key(request.app[STORE], request[VISITOR], wanted.name, wanted.scopes, now_s)
    return answer(NewKey(key, token), HTTPStatus.CREATED)


async def delete_key(request: web.Request) -> web.Response:
    """Revoke an API key.

    A key revokes none of other accounts that may do more than its scopes, and none of other admins.
    """
    if not await holders.revoke_key(request.app[STORE], request[VISITOR], request.match_info["key"]):
        raise web.HTTPNotFound(text="There is no such API key. It may have been revoked.")
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def get_log(request: web.Request) -> web.Response:
    """What was done in the console and through its API, by whom."""
    deeds, following = await request.app[STORE].audit.page(place(request), limit(request, _DEEDS))
    return answer(Deeds(tuple(deeds), following))


_NAME = Parameter("name", "path", "An account's name.")
_SESSION = Parameter("session", "path", "A session's id.")
_KEY = Parameter("key", "path", "An API key's id.")
_OWN = Need(Role.VIEWER, "access:write")

OPERATIONS: Final[Sequence[Operation]] = (
    Operation("GET", "/me", Need(Role.VIEWER), get_me, {200: Me}),
    Operation("PUT", "/me/password", _OWN, put_my_password, {204: None}, body=ChangePassword, problems=(429, *BODY)),
    Operation("PUT", "/me/zone", _OWN, put_my_zone, {204: None}, body=SetZone, problems=(404, *BODY)),
    Operation("GET", "/accounts", rule("access", "read"), get_accounts, {200: Accounts}),
    Operation("POST", "/accounts", rule("access"), post_account, {201: PasswordLink}, body=AddAccount, problems=BODY),
    Operation(
        "PATCH",
        "/accounts/{name}",
        rule("access"),
        patch_account,
        {200: AccountView},
        body=SetRole,
        parameters=(_NAME,),
        problems=(404, *BODY),
    ),
    Operation(
        "DELETE",
        "/accounts/{name}",
        rule("access"),
        delete_account,
        {204: None},
        parameters=(_NAME,),
        problems=(404, 422),
    ),
    Operation(
        "POST",
        "/accounts/{name}/link",
        rule("access"),
        post_account_link,
        {200: PasswordLink},
        parameters=(_NAME,),
        problems=(404,),
    ),
    Operation("GET", "/sessions", look("access"), get_sessions, {200: OpenSessions}),
    Operation(
        "DELETE", "/sessions/{session}", _OWN, delete_session, {204: None}, parameters=(_SESSION,), problems=(404,)
    ),
    Operation("GET", "/keys", look("access"), get_keys, {200: ApiKeys}),
    Operation("POST", "/keys", _OWN, post_key, {201: NewKey}, body=AddKey, problems=BODY),
    Operation("DELETE", "/keys/{key}", _OWN, delete_key, {204: None}, parameters=(_KEY,), problems=(404,)),
    Operation(
        "GET", "/log", rule("access", "read"), get_log, {200: Deeds}, parameters=(CURSOR, LIMIT), problems=(422,)
    ),
)
