"""Routes of the console: its pages, grouped by the permission they require, and the JSON API with its documentation."""

from collections.abc import Mapping, Sequence

from aiohttp import web

from service.console import atom_feeds, websub_callback
from service.console.api.openapi_document import api_page, get_openapi
from service.console.api.operation_registry import PREFIX
from service.console.auth import first_account, login, password_links
from service.console.auth.permissions import Permission
from service.console.resources import web_chat
from service.console.resources.access import account_settings, audit_log
from service.console.resources.channels import (
    add_channel,
    channel_list,
    channel_settings,
    channel_versions,
    host_blocks,
    opml,
    page_selector,
    sites,
)
from service.console.resources.channels import channel as channel_page
from service.console.resources.delivery import announcements, delivery_status
from service.console.resources.fleet import (
    about,
    directory,
    discover,
    nodes,
    overview,
    policy,
    shards,
)
from service.console.resources.people import dry_runs, people, xmpp_domain_blocks
from service.console.route_rules import OpenAccess
from service.console.static_files import serve_static_file
from service.store.console.accounts import Role


def list_routes() -> Mapping[Permission | OpenAccess, Sequence[web.RouteDef]]:
    """Return the routes of all pages, grouped by the permission they require or the open access they allow."""
    return {
        OpenAccess.PUBLIC: [
            web.get("/static/{path:.+}", serve_static_file),
            web.get("/login", login.login_form),
            web.post("/login", login.login),
            web.get("/setup", first_account.setup_form),
            web.post("/setup", first_account.setup),
            web.get("/join", password_links.join_form),
            web.post("/join", password_links.join),
            web.get(f"{PREFIX}/openapi.json", get_openapi),
            web.get("/feeds/{token}.atom", atom_feeds.personal_feed),
            web.get("/channels/{cid:[0-9a-f]{40}}.atom", atom_feeds.public_feed),
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
            web.get("/imports/{import_id}", opml.import_page),
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
            web.post("/imports/{import_id}/stop", opml.stop),
            web.post("/channels/{cid}/poll", channel_page.poll),
            web.post("/channels/{cid}/trace", channel_page.trace_poll),
            web.post("/channels/{cid}/pause", channel_settings.pause),
            web.post("/channels/{cid}/bounds", channel_settings.set_bounds),
            web.post("/channels/{cid}/bounds/undo", channel_settings.restore_bounds),
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
