"""Routes of the console: pages by required permission, and the JSON API with its document and reference page."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from aiohttp import web
from markupsafe import Markup

from service.console import websub_callback
from service.console.auth import login
from service.console.auth.authorization import OpenAccess
from service.console.auth.permissions import Permission
from service.console.openapi import Operation, build_document
from service.console.rendering import SETTINGS, json_response, load_templates, render, serve_static_file
from service.console.resources import web_chat
from service.console.resources.access import account_settings, api_keys, audit_log, console_accounts, sessions
from service.console.resources.channels import (
    add_channel,
    bulk_changes,
    channel_bounds,
    channel_list,
    channel_settings,
    channel_versions,
    host_blocks,
    opml,
    page_selector,
    sites,
)
from service.console.resources.channels import channel as channel_page
from service.console.resources.delivery import announcements, dead_letters, delivery_status
from service.console.resources.fleet import (
    about,
    directory,
    discover,
    nodes,
    overview,
    policy,
    search_explanation,
    shards,
    store_acceptance,
)
from service.console.resources.people import dry_runs, invitations, people, xmpp_domain_blocks
from service.store.console.accounts import Role

PREFIX: Final = "/api/v1"

OPERATIONS: Final[Sequence[Operation]] = (
    *add_channel.OPERATIONS,
    *page_selector.OPERATIONS,
    *channel_list.OPERATIONS,
    *bulk_changes.OPERATIONS,
    *sites.OPERATIONS,
    *host_blocks.OPERATIONS,
    *channel_page.OPERATIONS,
    *channel_settings.OPERATIONS,
    *channel_bounds.OPERATIONS,
    *channel_versions.OPERATIONS,
    *opml.OPERATIONS,
    *policy.OPERATIONS,
    *nodes.OPERATIONS,
    *shards.OPERATIONS,
    *store_acceptance.OPERATIONS,
    *people.OPERATIONS,
    *dry_runs.OPERATIONS,
    *invitations.OPERATIONS,
    *xmpp_domain_blocks.OPERATIONS,
    *announcements.OPERATIONS,
    *delivery_status.OPERATIONS,
    *dead_letters.OPERATIONS,
    *account_settings.OPERATIONS,
    *console_accounts.OPERATIONS,
    *sessions.OPERATIONS,
    *api_keys.OPERATIONS,
    *audit_log.OPERATIONS,
    *overview.OPERATIONS,
    *directory.OPERATIONS,
    *search_explanation.OPERATIONS,
    *discover.OPERATIONS,
)


def list_routes() -> Mapping[Permission | OpenAccess, Sequence[web.RouteDef]]:
    """Return the routes of all pages, by the permission that they require or the open access that they allow."""
    return {
        OpenAccess.PUBLIC: [
            web.get("/static/{path:.+}", serve_static_file),
            web.get("/login", login.login_form),
            web.post("/login", login.login),
            web.get("/setup", login.setup_form),
            web.post("/setup", login.setup),
            web.get("/join", login.join_form),
            web.post("/join", login.join),
            web.get(f"{PREFIX}/openapi.json", get_openapi),
        ],
        OpenAccess.WEBHOOK: [
            web.get(websub_callback.PATH, websub_callback.verify, allow_head=False),
            web.post(websub_callback.PATH, websub_callback.receive),
        ],
        Permission(Role.VIEWER): [
            web.get("/", overview.page),
            web.get("/live", overview.stream_updates, allow_head=False),
            web.get("/channels", channel_list.page),
            web.get("/channels/{cid}", channel_page.page),
            web.get("/channels/{cid}/versions", channel_versions.versions_page),
            web.get("/channels/{cid}/content", channel_versions.content_page),
            web.get("/nodes", nodes.page),
            web.get("/policy", policy.page),
            web.get("/shards", shards.page),
            web.get("/directory", directory.page),
            web.get("/directory/discover", discover.page),
            web.get("/hosts", sites.page),
            web.get("/hosts/{host}", sites.site_page),
            web.get("/people", people.page),
            web.get("/people/{user}", people.person_page),
            web.get("/blocked-domains", xmpp_domain_blocks.page),
            web.get("/delivery", delivery_status.page),
            web.get("/about", about.page),
            web.get("/api", api_page),
            web.get("/settings", account_settings.page),
            web.post("/settings/password", account_settings.set_password),
            web.post("/settings/zone", account_settings.set_zone),
            web.post("/settings/sessions/{session}/end", account_settings.end_session),
            web.post("/settings/keys", account_settings.create_key),
            web.post("/settings/keys/{key}/revoke", account_settings.revoke_key),
            web.post("/logout", login.logout),
        ],
        Permission(Role.OPERATOR): [
            web.post("/settings/invitations", account_settings.create_invitation),
            web.get("/channels/add", add_channel.add_form),
            web.post("/channels/add", add_channel.preview),
            web.post("/channels", add_channel.add),
            web.post("/channels/change", channel_list.change_selected),
            web.post("/channels/import", opml.upload),
            web.post("/channels/{cid}/poll", channel_page.poll),
            web.post("/channels/{cid}/trace", channel_page.trace_poll),
            web.post("/channels/{cid}/pause", channel_settings.pause),
            web.post("/channels/{cid}/bounds", channel_bounds.set_bounds),
            web.post("/channels/{cid}/bounds/undo", channel_bounds.restore_bounds),
            web.post("/channels/{cid}/selector", page_selector.change_selector),
            web.post("/channels/{cid}/remarks", channel_settings.set_tags_and_note),
            web.post("/channels/{cid}/listed", channel_settings.set_listed),
            web.get("/channels/{cid}/remove", channel_page.remove_form),
            web.post("/channels/{cid}/remove", channel_page.remove),
            web.post("/nodes/{worker}/restore", nodes.restore),
            web.post("/nodes/{node}/drain", nodes.drain),
            web.post("/shards", shards.change),
            web.post("/hosts/{host}/pause", sites.pause),
            web.post("/hosts/{host}/limit", sites.set_limit),
            web.post("/hosts/{host}/limit/reset", sites.reset_limit),
            web.post("/hosts/{host}/block", host_blocks.block),
            web.post("/hosts/{host}/allow", host_blocks.allow),
            web.post("/people/{user}", people.change),
            web.post("/people/{user}/rehearsal", dry_runs.dry_run),
            web.post("/blocked-domains", xmpp_domain_blocks.block),
            web.post("/blocked-domains/{host}/allow", xmpp_domain_blocks.allow),
            web.post("/delivery/{letter}/requeue", delivery_status.requeue),
            web.post("/delivery/{letter}/drop", delivery_status.drop),
        ],
        Permission(Role.ADMIN): [
            web.get("/chat", web_chat.page),
            web.get("/chat/xmpp", web_chat.proxy_socket, allow_head=False),
            web.get("/people/{user}/forget", people.forget_form),
            web.post("/people/{user}/forget", people.forget),
            web.post("/policy", policy.apply),
            web.post("/policy/restore", policy.restore),
            web.get("/log", audit_log.page),
            web.get("/announcements", announcements.page),
            web.post("/announcements", announcements.send),
            web.post("/announcements/preview", announcements.preview),
            web.post("/announcements/{number}/stop", announcements.stop),
            web.post("/settings/accounts", account_settings.create_account),
            web.post("/settings/accounts/{name}/role", account_settings.set_role),
            web.post("/settings/accounts/{name}/link", account_settings.create_password_link),
            web.post("/settings/accounts/{name}/remove", account_settings.remove_account),
        ],
    }


async def get_openapi(request: web.Request) -> web.Response:
    """Return the OpenAPI document of the JSON API."""
    return json_response(_document(request.app[SETTINGS].console_base_path))


async def api_page(request: web.Request) -> web.Response:
    """Show the API reference. Swagger UI is loaded only on demand."""
    response = render(request, "api.html", prefix=PREFIX, reference=_reference())
    response.enable_compression()  # it repeats nothing from the request, so its length reveals no secret (BREACH)
    return response


@cache
def _reference() -> Markup:
    areas: dict[str, list[tuple[str, str, Any]]] = {}
    for path, methods in _document("")["paths"].items():
        for method, description in methods.items():
            areas.setdefault(description["tags"][0], []).append((path, method, description))
    template = load_templates().get_template("api_reference.html")
    return Markup(template.render(areas=areas, types=_document("")["components"]["schemas"]))  # noqa: S704 - escaped


@cache
def _document(base_path: str) -> dict[str, Any]:
    return build_document(base_path + PREFIX, OPERATIONS)
