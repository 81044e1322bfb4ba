"""The page of one channel: what it is, why it is polled as it is, what came of it; and what admins do about it."""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec
from aiohttp import hdrs, web

from service.console.audited import DETAIL
from service.console.bulk import UNTIL_RESUMED_S, tags_of
from service.console.catalogue import content, detail, existing
from service.console.failures import in_plain_words, status_of
from service.console.paces_svg import paces_svg
from service.console.phrases import outcome_words, reason_in_words
from service.console.polls_svg import polls_svg
from service.console.ring_svg import ring_svg
from service.console.site import CLOCK, ROSTER, SETTINGS, STORE, render, zone_of
from service.console.spans import seconds_in, span
from service.corona.policy import UNBOUNDED
from service.errors import CoronetError, StoreUnavailable, UserError
from service.feeds.websub import Status
from service.store.requests import Step

_HUB_WORDS: Final[Mapping[Status, str]] = {
    "wanted": "To be asked for its pushes",
    "pending": "Asked for its pushes, not confirmed yet",
    "verified": "It pushes news",
    "refused": "It refuses to push",
    "leaving": "It is being left",
}
_LONGEST_NOTE: Final = 2_000
_VERSIONS_SHOWN: Final = 5
_VERSIONS_PER_PAGE: Final = 20


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a poll's trace; the last one says whether it went ``well``."""

    words: str
    after_s: float = 0.0
    well: bool | None = None


async def page(request: web.Request) -> web.Response:
    """Show one channel."""
    return await shown(request)


async def versions(request: web.Request) -> web.Response:
    """Show a channel's versions and what each of them changed."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    text = request.query.get("before", "")[:12]
    before = int(text) if text.isdecimal() else 0
    found = await request.app[STORE].channels.versions(channel.id, _VERSIONS_PER_PAGE, before)
    return render(
        request, "channel_versions.html", channel=channel, versions=found, full=len(found) == _VERSIONS_PER_PAGE
    )


async def located(request: web.Request) -> web.Response:
    """Show a channel's content as the nearest copy has it, and where that was."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    found = await content(request.app[STORE], channel.id)
    return render(request, "channel_content.html", channel=channel, content=found)


async def poll(request: web.Request) -> web.Response:
    """Have the channel polled at once, then show it."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    try:
        await request.app[STORE].requests.poll_now(channel.id)
    except StoreUnavailable:
        raise
    except CoronetError as error:
        return await shown(request, status_of(error), error=in_plain_words(error))
    raise web.HTTPSeeOther(f"/channels/{channel.id}?polled=1")


async def trace(request: web.Request) -> web.StreamResponse:
    """Have the channel polled at once, and tell each step while it happens, a line of JSON each."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "application/x-ndjson"})
    await response.prepare(request)

    async def tell(told: Told) -> None:
        await response.write(msgspec.json.encode(told) + b"\n")

    async def step(taken: Step) -> None:
        await tell(Told(taken.words, taken.after_s))

    ring = await request.app[STORE].ring.look()
    owner = ring.owner(channel.id)
    name = next((node.name for node in ring.nodes if node.id == owner), "")
    await tell(Told(f"Asks {name}, which owns the channel." if name else "Looks for a worker."))
    try:
        result = await request.app[STORE].requests.poll_now(channel.id, told=step)
    except CoronetError as error:
        await tell(Told(in_plain_words(error), well=False))
    else:
        well = result.outcome in {"new", "unchanged"}
        await tell(Told(f"{outcome_words(result.outcome)}. {result.detail}".strip(), well=well))
    await response.write_eof()
    return response


async def pause(request: web.Request) -> web.Response:
    """Have nobody poll a channel for a time, or until somebody resumes it, or poll it again."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    form = await request.post()
    text = str(form.get("for", "")).strip()
    try:
        for_s = 0.0 if form.get("resume") else seconds_in(text) if text else UNTIL_RESUMED_S
    except UserError as error:
        return await shown(request, 422, error=str(error))
    request[DETAIL] = text or ("resume" if form.get("resume") else "until resumed")
    await request.app[STORE].remarks.pause([channel.id], for_s)
    return await _back(request, channel.id)


async def remark(request: web.Request) -> web.Response:
    """Note something about a channel, and file it under tags."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    form = await request.post()
    note = str(form.get("note", ""))[:_LONGEST_NOTE]
    try:
        tags = tags_of(str(form.get("tags", "")))
    except UserError as error:
        return await shown(request, 422, error=str(error))
    remarks = request.app[STORE].remarks
    await asyncio.gather(remarks.set_note(channel.id, note.strip()), remarks.set_tags([(channel.id, tags)]))
    return await _back(request, channel.id)


async def _back(request: web.Request, cid: str) -> web.Response:
    await request.app[ROSTER].again([cid])
    raise web.HTTPSeeOther(f"/channels/{cid}")


async def shown(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Return the page of the channel whose id stands in the path, with what went wrong. Raises ``HTTPNotFound``."""
    store, now_s = request.app[STORE], request.app[CLOCK].wall_s()
    about, nodes = await asyncio.gather(detail(store, request.match_info["cid"]), store.ring.view())
    moved_to = about.channel.moved_to
    successor = await store.channels.get(moved_to) if moved_to else None
    names = {node.id: node.name for node in nodes}
    return render(
        request,
        "channel.html",
        status,
        about=about,
        channel=about.channel,
        successor=successor,
        names=names,
        site_requests_per_s=about.site_requests_per_s or request.app[SETTINGS].host_requests_per_s,
        picture=ring_svg(nodes, about.channel.id, [node.id for node in about.polling_set]),
        paces=paces_svg(about.paces, now_s, zone_of(request)),
        timeline=polls_svg(about.polls, about.why.turns if about.why else (), names, now_s),
        versions=await store.channels.versions(about.channel.id, _VERSIONS_SHOWN),
        reason=reason_in_words(about.why) if about.why else "",
        longest_wait_s=(await store.policy.get() or request.app[SETTINGS].policy().aims).longest_wait_s,
        own=about.bounds.bounds if about.bounds else UNBOUNDED,
        span=span,
        hub_words=_HUB_WORDS,
        polled="polled" in request.query,
        error=error,
    )
