"""The Blocked domains page and its API operations: XMPP domains whose users may not use the service.

The bot does not answer these users and sends them nothing. Their subscriptions are kept, and continue once the domain
is unblocked.
"""

from typing import Annotated, Final

import msgspec
from aiohttp import web

from service.console.api.operations import Operations
from service.console.app_keys import STORE
from service.console.auth.permissions import read_access, write_access
from service.console.forms import read_form, redirect_after, redisplay_on_error
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.page_rendering import render
from service.console.resources.channels.host_blocks import MAX_REASON_CHARS, add_block
from service.errors import UserError
from service.feeds.canonical_urls import canonical_url, host_of
from service.store.coordination.host_blocklist import HostBlock

_MAX_DOMAIN_CHARS: Final = 253
_DOMAIN: Final = "Domain of users' addresses, such as example.org; its subdomains are included."

operation = OPERATIONS = Operations()


class SetDomainBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request to block a domain. ``why`` is the reason, which other admins can read."""

    why: Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)] = ""


class BlockedDomains(msgspec.Struct, frozen=True):
    """The blocked domains: ``items`` maps each domain to its block, which also applies to all subdomains."""

    items: dict[str, HostBlock]


@operation("GET", "/blocked-domains", read_access("people"))
async def get_blocked_domains(request: web.Request) -> BlockedDomains:
    """List the domains whose users may not use the service."""
    return BlockedDomains(await request.app[STORE].blocked_user_domains.all())


@operation("PUT", "/blocked-domains/{host}", write_access("people"), 429, host_description=_DOMAIN)
async def block_domain(request: web.Request, body: SetDomainBlock) -> BlockedDomains:
    """Block a domain: the bot ignores its users and sends them nothing."""
    domain = _parse_domain(request.match_info["host"])
    await add_block(request, request.app[STORE].blocked_user_domains, domain, body.why)
    return await get_blocked_domains(request)


@operation("DELETE", "/blocked-domains/{host}", write_access("people"), 404, 422, host_description=_DOMAIN)
async def allow_domain(request: web.Request) -> None:
    """Unblock a domain: its users' subscriptions continue."""
    name = request[AUDIT_DETAIL] = _parse_domain(request.match_info["host"])
    if not await request.app[STORE].blocked_user_domains.remove(name):
        raise web.HTTPNotFound(text=f"{name} is not blocked itself. See the list of blocked domains.")


async def page(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Show the blocked domains. ``error`` is the message to show if a change failed."""
    blocked = await request.app[STORE].blocked_user_domains.all()
    return render(request, "domain_blocks.html", status, blocked=dict(sorted(blocked.items())), error=error)


allow = redirect_after(allow_domain, "/blocked-domains", page)


@redisplay_on_error(page)
async def block(request: web.Request) -> web.Response:
    """Block a domain: the bot ignores its users and sends them nothing."""
    form = await read_form(request)
    domain, why = _parse_domain(form.get("name", "")), form.get("why", "")[:MAX_REASON_CHARS]
    await add_block(request, request.app[STORE].blocked_user_domains, domain, why)
    raise web.HTTPSeeOther("/blocked-domains")


def _parse_domain(text: str) -> str:
    """Return the domain ``text`` in canonical form. Raises :class:`UserError` if it is not a domain."""
    if not text or len(text) > _MAX_DOMAIN_CHARS or any(char in text for char in "@/ "):
        raise UserError("Enter a domain such as example.org, without the name of a person.")
    return host_of(canonical_url(f"https://{text}/"))
