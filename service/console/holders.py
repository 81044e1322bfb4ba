"""What an account has open: sessions and API keys. Everybody sees and ends their own, an admin those of all."""

import msgspec

from service.console.access import SCOPES, Visitor
from service.errors import NotAllowed, UserError
from service.store import Store
from service.store.accounts import Role
from service.store.sessions import Session

_LONGEST_NAME = 64
_MOST_KEYS = 50
"""Of one account."""


class KeyView(msgspec.Struct, frozen=True):
    """An API key; nobody can see it again. Times are Unix s, ``used_s`` to the minute, null if it never was."""

    id: str
    name: str
    account: str
    scopes: tuple[str, ...]
    created_s: float
    used_s: float | None


async def sessions(store: Store, visitor: Visitor) -> tuple[Session, ...]:
    """Return the open sessions that a visitor may see, newest first."""
    return tuple(each for each in await store.sessions.all() if _may_see(visitor, each.account))


async def end_session(store: Store, visitor: Visitor, session: str) -> bool:
    """End a session by its id; False if there is none that the visitor may see. Raises :class:`NotAllowed`."""
    owners = {each.id: each.account for each in await sessions(store, visitor)}
    if session not in owners:
        return False
    await _must_be_able_to_end(store, visitor, owners[session])
    await store.sessions.end(session)
    return True


async def keys(store: Store, visitor: Visitor) -> tuple[KeyView, ...]:
    """Return the API keys that a visitor may see, newest first; not those whose account is gone."""
    accounts = await store.accounts.all()
    return tuple(
        KeyView(key.id, key.name, key.account, key.scopes, key.created_s, used_s)
        for key, used_s in await store.api_keys.all()
        if _may_see(visitor, key.account)
        and key.account in accounts
        and accounts[key.account].created_s == key.account_since_s
    )


async def make_key(
    store: Store, visitor: Visitor, name: str, scopes: tuple[str, ...], now_s: float
) -> tuple[KeyView, str]:
    """Return a new key of the visitor's account and its token. Raises :class:`UserError`."""
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise UserError(f"{unknown[0] if unknown else 'Nothing'} is no scope. There are: {', '.join(SCOPES)}.")
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise UserError(f"Give the key a name of at most {_LONGEST_NAME} characters, by which you know it again.")
    account = await store.accounts.get(visitor.name) if visitor.name else None
    if account is None:
        raise UserError("A key belongs to an account: log in to make one.")
    beyond = [scope for scope in scopes if not visitor.reaches(scope)]
    if beyond:
        raise UserError(f"The key you use has no scope {beyond[0]}, so it cannot make one that has.")
    if sum(key.account == visitor.name for key in await keys(store, visitor)) >= _MOST_KEYS:
        raise UserError(f"An account has at most {_MOST_KEYS} keys. Revoke one that is not used any more.")
    chosen = tuple(scope for scope in SCOPES if scope in scopes)
    key, token = await store.api_keys.make(name, (visitor.name, account), chosen, now_s)
    return KeyView(key.id, key.name, key.account, key.scopes, key.created_s, None), token


async def revoke_key(store: Store, visitor: Visitor, key: str) -> bool:
    """Revoke a key by its id; False if there is none that the visitor may see. Raises :class:`NotAllowed`."""
    owners = {each.id: each.account for each in await keys(store, visitor)}
    if key not in owners:
        return False
    await _must_be_able_to_end(store, visitor, owners[key])
    return await store.api_keys.revoke(key)


async def _must_be_able_to_end(store: Store, visitor: Visitor, owner: str) -> None:
    """Raise :class:`NotAllowed` for a key that would lock out people who may do more than the key, but for its own."""
    account = await store.accounts.get(owner)
    if account is not None and owner != visitor.name and not visitor.can_grant(account.role):
        raise NotAllowed("An API key ends no sessions and keys of other accounts that may do more than the key itself.")


def _may_see(visitor: Visitor, account: str) -> bool:
    return visitor.role is Role.ADMIN or visitor.name == account
