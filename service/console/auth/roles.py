"""Who somebody is and what they may do: roles of accounts, and scopes that bound a key's holder further. Pure."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from service.store.console.accounts import Role

Area = Literal["fleet", "channels", "people", "delivery", "access"]
"""What a scope is about. ``fleet``: nodes, shards, the directory, the policy; ``access``: accounts, keys, the log."""

SCOPES: Final = tuple(f"{area}:{what}" for area in get_args(Area) for what in ("read", "write"))


@dataclass(frozen=True, slots=True)
class Need:
    """What a route asks of who comes: a role, and of API keys a scope."""

    role: Role
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who is asking: an account, "" if there is none, and the name of the API key they came with, "" without one.

    ``scopes`` are the key's; None bounds nothing. ``zone`` is the account's, "" for the console's.
    """

    name: str
    role: Role
    key: str = ""
    scopes: frozenset[str] | None = None
    zone: str = ""

    def reaches(self, scope: str) -> bool:
        """Return whether the scopes hold this one ("" is none in particular); who may write an area may read it."""
        if self.scopes is None or not scope or scope in self.scopes:
            return True
        area, _, what = scope.partition(":")
        return what == "read" and f"{area}:write" in self.scopes

    def can_grant(self, role: Role) -> bool:
        """Return whether this visitor may hand an account of this role to somebody, or take it away.

        Whoever has an account's password link can do all that its role allows. So a key grants only what its own
        scopes cover, and never the role of admins, to whom keys are no bound.
        """
        if self.scopes is None:
            return True
        needed = ":read" if role is Role.VIEWER else ":write"
        return role is not Role.ADMIN and all(self.reaches(scope) for scope in SCOPES if scope.endswith(needed))


def look(area: Area) -> Need:
    """Return what reading takes."""
    return Need(Role.VIEWER, f"{area}:read")


def act(area: Area) -> Need:
    """Return what it takes to change how things go from day to day."""
    return Need(Role.OPERATOR, f"{area}:write")


def rule(area: Area, what: Literal["read", "write"] = "write") -> Need:
    """Return what it takes to change what all others depend on, or to see who may do what."""
    return Need(Role.ADMIN, f"{area}:{what}")
