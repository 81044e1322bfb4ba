"""Permissions: the roles of accounts, the scopes of API keys, the sender of a request, and what a route requires."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from service.store.console.accounts import Role

Area = Literal["fleet", "channels", "people", "delivery", "access"]
"""The part of the service that a scope covers.

``fleet`` is nodes, shards, the directory and the policy; ``access`` is accounts, API keys and the audit log.
"""

SCOPES: Final = tuple(f"{area}:{action}" for area in get_args(Area) for action in ("read", "write"))


@dataclass(frozen=True, slots=True)
class Permission:
    """The permission that a route requires.

    ``role`` is the lowest role that is sufficient. An API key must also have ``scope``; "" means that any key will do.
    """

    role: Role
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated sender of a request.

    ``name`` is the account's name, or "" for the console's admin token. ``key`` is the API key's name, or "" for a
    session. ``scopes`` are the key's scopes, or None if access is not restricted by scopes. ``zone`` is the account's
    time zone, or "" for the console's default.
    """

    name: str
    role: Role
    key: str = ""
    scopes: frozenset[str] | None = None
    zone: str = ""

    def has_scope(self, scope: str) -> bool:
        """Return whether the principal's scopes include ``scope``.

        Write access to an area (``AREA:write``) includes read access to it (``AREA:read``). Every principal has the
        empty scope.
        """
        if self.scopes is None or not scope or scope in self.scopes:
            return True
        area, _, action = scope.partition(":")
        return action == "read" and f"{area}:write" in self.scopes

    def can_grant(self, role: Role) -> bool:
        """Return whether this principal may create, change or remove accounts with the role ``role``.

        A principal that is not restricted by scopes always may. An API key may only if its scopes allow everything
        that the role allows. Otherwise the key's holder could gain rights through the password link of such an
        account. An API key can never grant the admin role.
        """
        if self.scopes is None:
            return True
        needed = ":read" if role is Role.VIEWER else ":write"
        return role is not Role.ADMIN and all(self.has_scope(scope) for scope in SCOPES if scope.endswith(needed))


def read_access(area: Area) -> Permission:
    """Return the permission to read an area of the console. Accounts of every role have this permission.

    An API key also needs the scope ``AREA:read``.
    """
    return Permission(Role.VIEWER, f"{area}:read")


def write_access(area: Area) -> Permission:
    """Return the permission for day-to-day changes in an area of the console. Operators and admins have it.

    An API key also needs the scope ``AREA:write``.
    """
    return Permission(Role.OPERATOR, f"{area}:write")


def admin_access(area: Area, action: Literal["read", "write"] = "write") -> Permission:
    """Return the permission that allows only admins to perform ``action`` in ``area``.

    It is required for changes that affect all users, and for reading accounts and the audit log. An API key also needs
    the scope ``AREA:ACTION``.
    """
    return Permission(Role.ADMIN, f"{area}:{action}")
