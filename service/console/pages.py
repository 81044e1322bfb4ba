"""The pages that are closed to strangers, and who may come in."""

from collections.abc import Mapping, Sequence

from aiohttp import web

from service.console import (
    about,
    api_page,
    bounds,
    channel_page,
    channels,
    channels_page,
    chat,
    delivery_page,
    directory_page,
    hosts_page,
    log_page,
    login,
    nodes,
    opml,
    overview_page,
    people_page,
    policy_page,
    settings_page,
    shards_page,
)
from service.store.accounts import Role


def pages() -> Mapping[Role, Sequence[web.RouteDef]]:
    """Return the routes of all pages by the role that opens them."""
    return {
        Role.VIEWER: [
            web.get("/", overview_page.page),
            web.get("/live", overview_page.stream, allow_head=False),
            web.get("/channels", channels_page.page),
            web.get("/channels/{cid}", channel_page.page),
            web.get("/channels/{cid}/versions", channel_page.versions),
            web.get("/channels/{cid}/content", channel_page.located),
            web.get("/nodes", nodes.page),
            web.get("/policy", policy_page.page),
            web.get("/shards", shards_page.page),
            web.get("/directory", directory_page.page),
            web.get("/hosts", hosts_page.page),
            web.get("/hosts/{host}", hosts_page.one),
            web.get("/people", people_page.page),
            web.get("/people/{user}", people_page.one),
            web.get("/delivery", delivery_page.page),
            web.get("/about", about.page),
            web.get("/api", api_page.page),
            web.get("/settings", settings_page.page),
            web.post("/settings/password", settings_page.set_password),
            web.post("/settings/sessions/{session}/end", settings_page.end_session),
            web.post("/settings/keys", settings_page.make_key),
            web.post("/settings/keys/{key}/revoke", settings_page.revoke_key),
            web.post("/logout", login.logout),
        ],
        Role.OPERATOR: [
            web.post("/settings/invitations", settings_page.make_invitation),
            web.post("/channels", channels.add),
            web.get("/channels/add", channels.add_form),
            web.post("/channels/change", channels_page.change),
            web.post("/channels/import", opml.upload),
            web.post("/channels/{cid}/poll", channel_page.poll),
            web.post("/channels/{cid}/trace", channel_page.trace),
            web.post("/channels/{cid}/pause", channel_page.pause),
            web.post("/channels/{cid}/bounds", bounds.set_bounds),
            web.post("/channels/{cid}/remarks", channel_page.remark),
            web.post("/channels/{cid}/listed", channels.set_listed),
            web.get("/channels/{cid}/remove", channels.remove_form),
            web.post("/channels/{cid}/remove", channels.remove),
            web.post("/nodes/restore", nodes.restore),
            web.post("/nodes/{node}/drain", nodes.drain),
            web.post("/shards", shards_page.change),
            web.post("/hosts/{host}", hosts_page.change),
            web.post("/people/{user}", people_page.change),
            web.post("/delivery/{letter}/requeue", delivery_page.requeue),
            web.post("/delivery/{letter}/drop", delivery_page.drop),
        ],
        Role.ADMIN: [
            web.get("/chat", chat.page),
            web.get("/chat/xmpp", chat.socket, allow_head=False),
            web.get("/people/{user}/forget", people_page.forget_form),
            web.post("/people/{user}/forget", people_page.forget),
            web.post("/policy", policy_page.apply),
            web.post("/policy/restore", policy_page.restore),
            web.get("/log", log_page.page),
            web.post("/settings/accounts", settings_page.make_account),
            web.post("/settings/accounts/{name}/role", settings_page.set_role),
            web.post("/settings/accounts/{name}/link", settings_page.make_link),
            web.post("/settings/accounts/{name}/remove", settings_page.remove_account),
        ],
    }
