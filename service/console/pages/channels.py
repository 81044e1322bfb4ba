"""The list of channels: found, paged, and many of them changed at once; as the page Channels and in the API.

A change of many channels goes on for as long as one request has time, and says how many are left.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, cast, get_args
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from service.console.audit_middleware import DETAIL
from service.console.auth.roles import act, look
from service.console.channel_cache import Wanted, after, cursor_at
from service.console.formatting import seconds_in
from service.console.openapi import CURSOR, LIMIT, Operations, Parameter
from service.console.pages.channel_queries import ChannelPage, page_number, views
from service.console.rendering import FINDER, ROSTER, STORE, limit, render
from service.errors import CoronetError, StoreUnavailable, UserError
from service.model import ChannelId
from service.store import Store

Action = Literal["pause", "resume", "poll", "list", "unlist", "tag", "untag", "remove"]

UNTIL_RESUMED_S: Final = 10 * 365 * 86_400.0

_PAGE: Final = 50
_LONGEST_WORD: Final = 200
_MOST_AT_ONCE: Final = 5_000
_NAMED: Final = 10
_MOST_TAGS: Final = 20
_LONGEST_TAG: Final = 40
_WITHIN_S: Final = 20.0
_AT_ONCE: Final = 16
_PROBLEMS_TOLD: Final = 20
_COLUMNS: Final = {
    "title": "Channel",
    "failing": "State",
    "subscribers": "Subscribers",
    "news": "News",
    "added": "Added",
}
"""What the list can be sorted by, and how that column is called."""
_STATES: Final = ("polled", "failing", "paused", "blocked", "idle", "moved")

_Id = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]

operation = OPERATIONS = Operations()


class Bulk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to do to which channels. ``tag`` is for tag and untag; ``for_s`` how long to pause, 0 until resumed."""

    action: Action
    channels: Annotated[tuple[_Id, ...], msgspec.Meta(min_length=1, max_length=1_000)]
    tag: str = ""
    for_s: Annotated[float, msgspec.Meta(ge=0, le=366 * 86_400.0)] = 0.0


class Done(msgspec.Struct, frozen=True):
    """How many channels it was done to, and how many are left for lack of time; ``problems`` are of single channels."""

    done: int
    left: int
    problems: tuple[str, ...]


@operation("POST", "/channels/bulk", act("channels"))
async def post_bulk(request: web.Request, wanted: Bulk) -> Done:
    """Do the same to many channels: pause, resume, poll, list, unlist, tag, untag or remove them."""
    request[DETAIL] = f"{wanted.action} {wanted.tag} {len(wanted.channels)} channels"
    done = await change_many(request.app[STORE], wanted)
    await request.app[ROSTER].again(wanted.channels)
    return done


@operation(
    "GET",
    "/channels",
    look("channels"),
    422,
    query=(
        Parameter("q", "query", "Only channels whose title or URL holds this text."),
        Parameter(
            "state", "query", "Only channels that are `polled`, `failing`, `idle`, `paused`, `blocked` or `moved`."
        ),
        Parameter("tag", "query", "Only channels that admins file under this word."),
        Parameter("site", "query", "Only channels of this site: a registrable domain."),
        Parameter(
            "sort",
            "query",
            "`id` (the default), `title`, `subscribers`, `news`, `version`, `site`, `failing` or `added`; `-` before "
            "it turns the order round.",
        ),
        CURSOR,
        LIMIT,
    ),
)
async def get_channels(request: web.Request) -> ChannelPage:
    """Channels, a page at a time."""
    app, wanted, count = request.app, _wanted(request.query), limit(request, _PAGE)
    await app[ROSTER].look()
    ids = app[FINDER].find(wanted)
    start = after(ids, request.query.get("cursor", ""))
    some = ids[start : start + count]
    return ChannelPage(await views(app[STORE], some), cursor_at(ids, start + len(some)), len(ids))


async def page(request: web.Request) -> web.Response:
    """List channels, a page at a time."""
    return await _page(request, request.query)


async def change(request: web.Request) -> web.Response:
    """Do the same to many channels."""
    form = await request.post()
    fields = {name: str(value) for name, value in form.items()}
    # The tag to give, and the one that the list was about.
    query = {**fields, "tag": fields.get("tag_was", "")}
    if fields.get("action") not in get_args(Action):
        raise UserError("It was not said what to do with the channels.")

    try:
        return await _carry_out(request, fields, [str(cid) for cid in form.getall("channel", [])], query)
    except UserError as error:
        return await _page(request, query, 422, error=str(error))


async def _carry_out(
    request: web.Request, fields: Mapping[str, str], ticked: Sequence[str], query: Mapping[str, str]
) -> web.Response:
    ids = await _chosen(request, ticked, query)
    if not ids:
        raise UserError("Choose some channels first.")
    if fields["action"] == "remove" and fields.get("sure") != "1":
        return await _ask(request, ids, query)
    for_s = seconds_in(fields["for"]) if fields.get("for", "").strip() else 0.0
    bulk = Bulk(cast("Action", fields["action"]), tuple(ids), fields.get("tag", ""), for_s)
    done = await change_many(request.app[STORE], bulk)
    await request.app[ROSTER].again(ids)
    request[DETAIL] = f"{bulk.action} {bulk.tag}: {done.done} channels"
    return await _page(request, query, done=done, action=bulk.action)


async def _chosen(request: web.Request, ticked: Sequence[str], query: Mapping[str, str]) -> list[ChannelId]:
    """Return the channels that are ticked, or all that the list was about; only those that there are."""
    await request.app[ROSTER].look()
    if query.get("all") == "1":
        return list(request.app[FINDER].find(_wanted(query))[:_MOST_AT_ONCE])
    return [cid for cid in ticked[:_MOST_AT_ONCE] if cid in request.app[ROSTER].rows]


async def _ask(request: web.Request, ids: list[ChannelId], query: Mapping[str, str]) -> web.Response:
    named = await request.app[STORE].channels.get_many(ids[:_NAMED])
    return render(
        request,
        "channels_remove.html",
        ids=ids,
        named=[channel.title or channel.url for channel in named if channel is not None],
        subscriptions=sum(map(request.app[ROSTER].subscribers, ids)),
        whole=query.get("all") == "1",
        back=_query(_wanted(query)),
    )


async def _page(request: web.Request, query: Mapping[str, str], status: int = 200, **shown: object) -> web.Response:
    wanted = _wanted({"sort": "title", **query})
    await request.app[ROSTER].look()
    finder = request.app[FINDER]
    ids = finder.find(wanted)
    number, pages = page_number(query, len(ids), _PAGE)
    some = ids[(number - 1) * _PAGE : number * _PAGE]
    return render(
        request,
        "channels.html",
        status,
        found=await views(request.app[STORE], some),
        wanted=wanted,
        link=lambda **changes: _link(wanted, **changes),
        columns=_COLUMNS,
        states=_STATES,
        tags=finder.tags(),
        total=len(ids),
        everything=len(request.app[ROSTER].rows),
        first=(number - 1) * _PAGE + 1,
        number=number,
        pages=pages,
        intervals={cid: request.app[ROSTER].rows[cid].update_interval_s for cid in some},
        removed="removed" in query,
        **({"error": "", "done": None, "action": ""} | shown),
    )


def _wanted(query: Mapping[str, str]) -> Wanted:
    """Return what a page's address, or a request of the API, looks for. Raises :class:`UserError`."""
    sort = query.get("sort", "id")
    given = {name: query.get(name, "")[:_LONGEST_WORD] for name in ("state", "tag", "site")}
    given |= {"text": query.get("q", "")[:_LONGEST_WORD], "sort": sort.removeprefix("-")}
    try:
        return msgspec.convert(given | {"reverse": sort.startswith("-")}, Wanted)
    except msgspec.ValidationError as error:
        raise UserError(f"Channels cannot be found by this: {error}") from error


def _query(wanted: Wanted) -> dict[str, str]:
    sort = f"{'-' if wanted.reverse else ''}{wanted.sort}"
    given = {"q": wanted.text, "state": wanted.state, "tag": wanted.tag, "site": wanted.site, "sort": sort}
    return {name: value for name, value in given.items() if value}


def _link(wanted: Wanted, **changes: object) -> str:
    """Return the address of the same list but for something."""
    if changes.get("sort") == wanted.sort and "page" not in changes and not wanted.reverse:
        changes["sort"] = f"-{wanted.sort}"
    given = {name: str(value) for name, value in {**_query(wanted), **changes}.items() if value}
    return f"/channels?{urlencode(given)}"


async def change_many(store: Store, bulk: Bulk) -> Done:
    """Carry out a change. Raises :class:`UserError` for a tag that is none, and StoreUnavailable."""
    if bulk.action in {"tag", "untag"}:
        bulk = msgspec.structs.replace(bulk, tag=_tag_of(bulk.tag))
    waiting, until_s = iter(bulk.channels), time.monotonic() + _WITHIN_S
    done: list[ChannelId] = []
    problems: list[str] = []

    async def work() -> None:
        while time.monotonic() < until_s and (cid := next(waiting, None)) is not None:
            try:
                await _change_one(store, bulk, cid)
            except StoreUnavailable:
                raise
            except CoronetError as error:
                problems.append(f"{cid[:8]}: {error}")
            else:
                done.append(cid)

    await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
    left = len(bulk.channels) - len(done) - len(problems)
    return Done(len(done), left, tuple(problems[:_PROBLEMS_TOLD]))


async def _change_one(store: Store, bulk: Bulk, cid: ChannelId) -> None:
    match bulk.action:
        case "pause":
            await store.admin_settings.pause([cid], bulk.for_s or UNTIL_RESUMED_S)
        case "resume":
            await store.admin_settings.pause([cid], 0)
        case "poll":
            await store.worker_requests.poll_now(cid)
        case "list" | "unlist":
            await store.channels.set_listed(cid, listed=bulk.action == "list")
        case "tag" | "untag":
            await _retag(store, bulk, cid)
        case "remove":
            await store.remove_channel(cid)


async def _retag(store: Store, bulk: Bulk, cid: ChannelId) -> None:
    (found,) = await store.admin_settings.read([cid])
    if found is None:
        return
    tags = {*found.tags} - {bulk.tag} | ({bulk.tag} if bulk.action == "tag" else set())
    if len(tags) > _MOST_TAGS:
        raise UserError(f"It has {_MOST_TAGS} tags already. Take one away first.")
    await store.admin_settings.set_tags([(cid, sorted(tags))])


def _tag_of(text: str) -> str:
    """Return a word to file channels under, as it is kept. Raises :class:`UserError`."""
    tag = text.strip().casefold()
    if not tag or len(tag) > _LONGEST_TAG or len(tag.split()) > 1 or not tag.isprintable():
        raise UserError(f"A tag is one word of at most {_LONGEST_TAG} characters, without spaces.")
    return tag


def tags_of(text: str) -> list[str]:
    """Return all tags in a text, in order. Raises :class:`UserError`."""
    tags = sorted({_tag_of(word) for word in text.split()})
    if len(tags) > _MOST_TAGS:
        raise UserError(f"A channel has at most {_MOST_TAGS} tags.")
    return tags
