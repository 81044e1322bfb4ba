"""Blocked hosts: the API operations and forms that block requests to a publisher's host or domain."""

import time
from typing import Annotated, Final

import msgspec
from aiohttp import web

from service.console.api.operations import Operations
from service.console.app_keys import PRINCIPAL, STORE
from service.console.auth.permissions import read_access, write_access
from service.console.forms import read_form, redirect_after, redisplay_on_error
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.resources.channels.sites import parse_host, requested_site, site_page
from service.errors import UserError
from service.net.sites_and_networks import site_of
from service.store.coordination.host_blocklist import BlockedHosts, HostBlock

MAX_REASON_CHARS: Final = 200

operation = OPERATIONS = Operations()


class SetBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A block of a host. ``why`` is the reason, which other admins can read."""

    why: Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)] = ""


class Blocked(msgspec.Struct, frozen=True):
    """The blocked hosts and domains, by name. Blocking a domain blocks all its hosts."""

    items: dict[str, HostBlock]


@operation("GET", "/blocked-hosts", read_access("channels"))
async def get_blocked_hosts(request: web.Request) -> Blocked:
    """List blocked hosts."""
    return Blocked(await request.app[STORE].blocked_hosts.all())


_HOST_OR_DOMAIN = "Host name of a publisher, or a domain for all its hosts."


@operation("PUT", "/hosts/{host}/block", write_access("channels"), 429, host_description=_HOST_OR_DOMAIN)
async def block_host(request: web.Request, body: SetBlock) -> Blocked:
    """Block a host, or all hosts of a domain: no requests to it and no new subscriptions."""
    await add_block(request, request.app[STORE].blocked_hosts, parse_host(request.match_info["host"]), body.why)
    return await get_blocked_hosts(request)


@operation("DELETE", "/hosts/{host}/block", write_access("channels"), 404, 422, host_description=_HOST_OR_DOMAIN)
async def allow_host(request: web.Request) -> None:
    """Unblock a host or domain."""
    name = request[AUDIT_DETAIL] = parse_host(request.match_info["host"])
    if not await request.app[STORE].blocked_hosts.remove(name):
        raise web.HTTPNotFound(text=f"{name} is not blocked itself. See the list of blocked hosts and domains.")


@redisplay_on_error(site_page)
async def block(request: web.Request) -> web.Response:
    """Block a host, or all hosts of a site."""
    site, form = requested_site(request), await read_form(request)
    name = parse_host(form.get("name", ""))
    if site_of(name) != site:
        raise UserError(f"“{name}” is not a host of {site}.")
    await add_block(request, request.app[STORE].blocked_hosts, name, form.get("why", "")[:MAX_REASON_CHARS])
    raise web.HTTPSeeOther(f"/hosts/{site}#blocked")


allow = redirect_after(allow_host, "/hosts/{host}#blocked", site_page)


async def add_block(request: web.Request, blocks: BlockedHosts, name: str, why: str) -> None:
    """Add ``name`` to ``blocks`` for the reason ``why``, on behalf of the request's sender."""
    request[AUDIT_DETAIL] = f"{name}: {why}"
    await blocks.add(name, HostBlock(request[PRINCIPAL].name, time.time(), why))
