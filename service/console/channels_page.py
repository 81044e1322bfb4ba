"""The list of channels: searched, sorted, and many of them changed at once."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from service.console.audited import DETAIL
from service.console.bulk import ACTIONS, Action, act
from service.console.catalogue import PAGE, asked_for, views
from service.console.finding import Wanted
from service.console.site import FINDER, ROSTER, STORE, render
from service.console.spans import seconds_in
from service.errors import UserError
from service.model import ChannelId

_MOST_AT_ONCE: Final = 5_000
_NAMED: Final = 10

COLUMNS: Final = {
    "title": "Channel",
    "failing": "State",
    "subscribers": "Subscribers",
    "news": "News",
    "added": "Added",
}
"""What the list can be sorted by, and how that column is called."""
_STATES: Final = ("polled", "failing", "paused", "blocked", "idle", "moved")


async def page(request: web.Request) -> web.Response:
    """List channels, a page at a time."""
    return await _page(request, request.query)


async def change(request: web.Request) -> web.Response:
    """Do the same to many channels."""
    form = await request.post()
    fields = {name: str(value) for name, value in form.items()}
    # The tag to give, and the one that the list was about.
    query = {**fields, "tag": fields.get("tag_was", "")}
    action = _action(fields.get("action", ""))
    ids = await _chosen(request, [str(cid) for cid in form.getall("channel", [])], query)
    if not ids:
        return await _page(request, query, 422, error="Choose some channels first.")
    if action == "remove" and fields.get("sure") != "1":
        return await _ask(request, ids, query)
    try:
        for_s = seconds_in(fields["for"]) if fields.get("for", "").strip() else 0.0
        done = await act(request.app[STORE], action, ids, tag=fields.get("tag", ""), for_s=for_s)
    except UserError as error:
        return await _page(request, query, 422, error=str(error))
    await request.app[ROSTER].again(ids)
    request[DETAIL] = f"{action} {fields.get('tag', '')}: {done.done} channels"
    return await _page(request, query, done=done, action=action)


def _action(text: str) -> Action:
    action = next((action for action in ACTIONS if action == text), None)
    if action is None:
        raise UserError("It was not said what to do with the channels.")
    return action


async def _chosen(request: web.Request, ticked: list[str], query: Mapping[str, str]) -> list[ChannelId]:
    """Return the channels that are ticked, or all that the list was about; only those that there are."""
    await request.app[ROSTER].look()
    if query.get("all") == "1":
        return list(request.app[FINDER].find(asked_for(query))[:_MOST_AT_ONCE])
    return [cid for cid in ticked[:_MOST_AT_ONCE] if cid in request.app[ROSTER].rows]


async def _ask(request: web.Request, ids: list[ChannelId], query: Mapping[str, str]) -> web.Response:
    named = await request.app[STORE].channels.many(ids[:_NAMED])
    return render(
        request,
        "channels_remove.html",
        ids=ids,
        named=[channel.title or channel.url for channel in named if channel is not None],
        subscriptions=sum(map(request.app[ROSTER].subscribers, ids)),
        whole=query.get("all") == "1",
        back=_query(asked_for(query)),
    )


async def _page(request: web.Request, query: Mapping[str, str], status: int = 200, **told: object) -> web.Response:
    looked_for = asked_for({"sort": "title", **query})
    await request.app[ROSTER].look()
    finder = request.app[FINDER]
    ids = finder.find(looked_for)
    pages = max(1, -(-len(ids) // PAGE))
    number = min(max(1, int(text) if (text := query.get("page", "1")[:9]).isdecimal() else 1), pages)
    shown = ids[(number - 1) * PAGE : number * PAGE]
    return render(
        request,
        "channels.html",
        status,
        found=await views(request.app[STORE], shown),
        wanted=looked_for,
        link=lambda **changes: _link(looked_for, **changes),
        columns=COLUMNS,
        states=_STATES,
        tags=finder.tags(),
        total=len(ids),
        everything=len(request.app[ROSTER].rows),
        first=(number - 1) * PAGE + 1,
        number=number,
        pages=pages,
        intervals={cid: request.app[ROSTER].rows[cid].update_interval_s for cid in shown},
        removed="removed" in query,
        **({"error": "", "done": None, "action": ""} | told),
    )


def _query(wanted: Wanted) -> dict[str, str]:
    sort = f"{'-' if wanted.reverse else ''}{wanted.sort}"
    said = {"q": wanted.text, "state": wanted.state, "tag": wanted.tag, "site": wanted.site}
    return {name: value for name, value in {**said, "sort": sort}.items() if value}


def _link(wanted: Wanted, **changes: object) -> str:
    """Return the address of the same list but for something."""
    if changes.get("sort") == wanted.sort and "page" not in changes and not wanted.reverse:
        changes["sort"] = f"-{wanted.sort}"
    told = {name: str(value) for name, value in {**_query(wanted), **changes}.items() if value}
    return f"/channels?{urlencode(told)}"
