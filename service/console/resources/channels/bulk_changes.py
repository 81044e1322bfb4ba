"""Bulk changes: pausing, resuming, polling, listing, tagging or removing many channels at once.

The changes in one request run concurrently for a limited time; the result states how many channels were not processed
in this time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Annotated, Final, Literal

import msgspec
from aiohttp import web

from service.asyncio_tasks import cancel_and_wait
from service.console.api.operations import Operations
from service.console.app_keys import CHANNEL_CACHE, STORE
from service.console.auth.permissions import write_access
from service.console.formatting import short_id
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.resources.channels.channel_settings import MAX_TAGS, PAUSE_UNTIL_RESUMED_S, parse_tag
from service.errors import CoronetError, StoreUnavailable, UserError
from service.model import ChannelId
from service.search.entry_registration import remove_channel
from service.store import Store

operation = OPERATIONS = Operations()

Action = Literal["pause", "resume", "poll", "list", "unlist", "tag", "untag", "remove"]
_CONCURRENCY: Final = 8
_TIME_LIMIT_S: Final = 20.0
_MAX_PROBLEMS: Final = 20

_Id = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]


class BulkChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change to many channels.

    ``tag`` is the tag to add or to remove. ``for_s`` is the length of a pause in seconds; 0 means that the pause lasts
    until somebody resumes the channels.
    """

    action: Action
    channels: Annotated[tuple[_Id, ...], msgspec.Meta(min_length=1, max_length=1_000)]
    tag: str = ""
    for_s: Annotated[float, msgspec.Meta(ge=0, le=366 * 86_400.0)] = 0.0


class BulkResult(msgspec.Struct, frozen=True):
    """The result of a change to many channels.

    ``done`` is the number of changed channels. ``left`` is the number of channels that were not processed before the
    time ran out. ``problems`` are the errors for individual channels.
    """

    done: int
    left: int
    problems: tuple[str, ...]


@operation("POST", "/channels/bulk", write_access("channels"))
async def post_bulk(request: web.Request, body: BulkChange) -> BulkResult:
    """Pause, resume, poll, list, unlist, tag, untag or remove many channels."""
    store = request.app[STORE]
    if body.action in {"tag", "untag"}:
        body = msgspec.structs.replace(body, tag=parse_tag(body.tag))
    done, failed = await _change_each(body.channels, lambda cid: _change_one(store, body, cid))
    await request.app[CHANNEL_CACHE].reload(body.channels)
    request[AUDIT_DETAIL] = f"{body.action} {body.tag}: {done} of {len(body.channels)} channels"
    problems = tuple(f"{short_id(cid)}: {error}" for cid, error in failed[:_MAX_PROBLEMS])
    return BulkResult(done, len(body.channels) - done - len(failed), problems)


async def _change_one(store: Store, bulk: BulkChange, cid: ChannelId) -> None:
    match bulk.action:
        case "pause":
            await store.admin_settings.pause([cid], bulk.for_s or PAUSE_UNTIL_RESUMED_S)
        case "resume":
            await store.admin_settings.pause([cid], 0)
        case "poll":
            await store.worker_requests.poll_now(cid)
        case "list" | "unlist":
            await store.channels.set_listed(cid, listed=bulk.action == "list")
        case "tag" | "untag":
            await _change_tags(store, bulk, cid)
        case "remove":
            await remove_channel(store, cid)


async def _change_tags(store: Store, bulk: BulkChange, cid: ChannelId) -> None:
    (found,) = await store.admin_settings.read([cid])
    if found is None:
        return
    tags = {*found.tags} - {bulk.tag} | ({bulk.tag} if bulk.action == "tag" else set())
    if len(tags) > MAX_TAGS:
        raise UserError(f"It already has {MAX_TAGS} tags. Remove one first.")
    await store.admin_settings.set_tags([(cid, sorted(tags))])


async def _change_each(
    cids: Iterable[ChannelId], change: Callable[[ChannelId], Awaitable[None]]
) -> tuple[int, list[tuple[ChannelId, CoronetError]]]:
    """Call ``change`` on each of ``cids``, several at once.

    Return (count, failures): the number of successful calls, and a pair (id, error) for each failed call. Calls that do
    not finish within ``_TIME_LIMIT_S`` seconds are in neither. StoreUnavailable stops all calls and is raised.
    """
    remaining, done = iter(cids), 0
    failed: list[tuple[ChannelId, CoronetError]] = []

    async def work() -> None:
        nonlocal done
        for cid in remaining:
            try:
                await change(cid)
            except StoreUnavailable:
                raise
            except CoronetError as error:
                failed.append((cid, error))
            else:
                done += 1

    tasks = [asyncio.create_task(work()) for _ in range(_CONCURRENCY)]
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_TIME_LIMIT_S):
                await asyncio.gather(*tasks)
    finally:
        await cancel_and_wait(*tasks)
    return done, failed
