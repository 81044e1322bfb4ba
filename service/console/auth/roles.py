"""Roles of accounts and scopes of API keys: who sends a request, and which permission a route requires. Pure."""

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
    """The permission that a route requires: a role, and for API keys also a scope ("" for none in particular)."""

    role: Role
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated sender of a request.

    ``name`` is the account's ("" for the console's admin token), ``key`` the API key's name ("" for a session).
    ``scopes`` are the key's; None means unrestricted. ``zone`` is the account's time zone, "" for the default one.
    """

    name: str
    role: Role
    key: str = ""
    scopes: frozenset[str] | None = None
    zone: str = ""

    def has_scope(self, scope: str) -> bool:
        """Return whether the scopes include ``scope``. Write access to an area includes read access; "" always is."""
        if self.scopes is None or not scope or scope in self.scopes:
            return True
        area, _, action = scope.partition(":")
        return action == "read" and f"{area}:write" in self.scopes

    def can_grant(self, role: Role) -> bool:
        """Return whether this principal may create, change or remove accounts of ``role``.

        The password link of an account gives access to everything its role allows. So an API key grants only roles
        that its own scopes cover, and never the admin role, which scopes do not restrict.
        """
        if self.scopes is None:
            return True
        needed = ":read" if role is Role.VIEWER else ":write"
        return role is not Role.ADMIN and all(self.has_scope(scope) for scope in SCOPES if scope.endswith(needed))


def read_access(area: Area) -> Permission:
    """Return the permission to read an area: any role."""
    return Permission(Role.VIEWER, f"{area}:read")


def write_access(area: Area) -> Permission:
    """Return the permission for day-to-day changes in an area: operators and admins."""
    return Permission(Role.OPERATOR, f"{area}:write")


def admin_access(area: Area, action: Literal["read", "write"] = "write") -> Permission:
    """Return the permission for changes that affect everybody, or for reading who has access: admins only."""
    return Permission(Role.ADMIN, f"{area}:{action}")
