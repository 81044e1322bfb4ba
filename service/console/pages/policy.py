"""The page Policy and its API operations: the fleet's polling policy, a preview of changes, their history and undo."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from aiohttp import web

from service.console.audit_middleware import AUDIT_DETAIL
from service.console.auth.roles import admin_access, read_access
from service.console.channel_cache import ChannelCache, ChannelRow
from service.console.charts import Curve, wait_curves_svg
from service.console.formatting import format_duration, parse_duration
from service.console.openapi import Operations
from service.console.policy_preview import ChannelDelays, ChannelLoad, Outcome, PolicyModel, SlowChannel
from service.console.rendering import CHANNEL_CACHE, CLOCK, PRINCIPAL, SETTINGS, STORE, read_form, render
from service.corona.fleet_policy import NO_BOUNDS, ChannelBounds, FleetObjective, Goal, Levels
from service.corona.optimizer.poll_explanation import BindingConstraint
from service.errors import UserError
from service.model import ChannelId
from service.operations.polling_state import bound_shares, one_bound_warning
from service.settings import Settings
from service.store import Store
from service.store.coordination.fleet_policy import BoundsSnapshot, Revision

GOALS: Final[Mapping[Goal, tuple[str, str]]] = {
    Goal.LITE: ("Lite", "Minimize the average delay per subscriber with a fixed number of polls."),
    Goal.FAST: ("Fast", "Meet a target for the mean delay with as few polls as possible."),
    Goal.FAIR: ("Fair", "Minimize the average delay per update: channels that rarely publish are polled rarely."),
    Goal.FAIR_SQRT: ("Fair-Sqrt", "Between Fair and Lite: update intervals count by their square root."),
    Goal.FAIR_LOG: ("Fair-Log", "Closer to Lite: update intervals count by their logarithm."),
}
LEVELS: Final[Mapping[Levels, str]] = {
    Levels.CONTINUOUS: "Any number",
    Levels.BASE_2: "Halves (base 2)",
    Levels.BASE_4: "Quarters (base 4)",
    Levels.BASE_16: "Sixteenths (base 16)",
}
_MAX_FIELD_CHARS: Final = 40
_MAX_DELAY_CHANGES: Final = 5
_CONFLICT: Final = "Someone else has changed the policy {when}. Review it before you change it."

operation = OPERATIONS = Operations()


class CurrentPolicy(msgspec.Struct, frozen=True):
    """The present policy ``aims``, which an admin has ``set``, or which is the default in the settings (``usual``).

    ``revision`` is the number of the last change; 0 means that there was none. ``history`` are the last changes, newest
    first.
    """

    aims: FleetObjective
    set: bool
    usual: FleetObjective
    revision: int
    history: tuple[Revision, ...]


class DelayChange(msgspec.Struct, frozen=True):
    """A channel whose mean detection delay would change.

    ``before_s`` and ``after_s`` are the delays before and after the change, in seconds.
    """

    channel: ChannelId
    title: str
    subscribers: int
    before_s: float
    after_s: float


class SlowestChannel(msgspec.Struct, frozen=True):
    """A channel with a long mean detection delay ``wait_s`` (s), and the constraint that determines it."""

    channel: ChannelId
    title: str
    subscribers: int
    wait_s: float
    bound_by: BindingConstraint


class PolicyPreview(msgspec.Struct, frozen=True):
    """The effect of the present policy (``now``) and of another one (``then``) on the polled channels.

    ``sooner`` are the channels whose detection delay would decrease most for their subscribers, and ``later`` those
    whose delay would increase most. ``slowest`` are the channels with the longest delays under the other policy.
    ``warning`` says what to change if nearly all channels have the same limit under the other policy; "" if they do
    not.
    """

    channels: int
    nodes: int
    now: Outcome
    then: Outcome
    sooner: tuple[DelayChange, ...] = ()
    later: tuple[DelayChange, ...] = ()
    slowest: tuple[SlowestChannel, ...] = ()
    warning: str = ""


class SetPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new policy. ``aims`` is null to return to the default in the settings.

    ``seen`` is the revision of the policy that the change is based on. If there is a later revision, the change is
    refused. With null, the change is made in any case.
    """

    aims: FleetObjective | None
    seen: int | None = None


@operation("GET", "/policy", read_access("fleet"))
async def get_policy(request: web.Request) -> CurrentPolicy:
    """Get the policy and its last changes."""
    store, default = request.app[STORE], request.app[SETTINGS].policy().objective
    aims, history = await asyncio.gather(store.fleet_policy.get(), store.fleet_policy.history())
    return CurrentPolicy(
        aims or default, aims is not None, default, history[0].number if history else 0, tuple(history)
    )


@operation("PUT", "/policy", admin_access("fleet"), 409)
async def put_policy(request: web.Request, body: SetPolicy) -> CurrentPolicy:
    """Change the policy."""
    request[AUDIT_DETAIL] = msgspec.json.encode(body.aims).decode()
    return await _set(request, body.aims, body.seen)


@operation("POST", "/policy/undo", admin_access("fleet"), 409, 422)
async def undo_policy(request: web.Request) -> CurrentPolicy:
    """Undo the last change of the policy."""
    present = await get_policy(request)
    return await _set(request, _previous_aims(present.history), present.revision)


async def _set(request: web.Request, aims: FleetObjective | None, seen: int | None) -> CurrentPolicy:
    if not await request.app[STORE].fleet_policy.set(aims, by=request[PRINCIPAL].name, seen=seen):
        raise web.HTTPConflict(text=_CONFLICT.format(when="in the meantime"))
    return await get_policy(request)


@operation("POST", "/policy/what-if", read_access("fleet"))
async def weigh_policy(request: web.Request, body: FleetObjective) -> PolicyPreview:
    """Preview the effect of another policy on the current channels without changing it."""
    now_s = request.app[CLOCK].wall_s()
    return await _preview(request.app[STORE], request.app[SETTINGS], request.app[CHANNEL_CACHE], body, now_s)


async def page(request: web.Request) -> web.Response:
    """Show the policy. If the query has another policy, show a preview of its effect."""
    if "goal" not in request.query:
        return await _page(request)
    try:
        return await _page(request, _parse_aims(request.query))
    except UserError as error:
        return await _page(request, status=422, error=str(error), entered=request.query)


async def apply(request: web.Request) -> web.Response:
    """Change the policy."""
    form = await read_form(request)
    try:
        aims = _parse_aims(form)
    except UserError as error:
        return await _page(request, status=422, error=str(error), entered=form)
    request[AUDIT_DETAIL] = describe_aims(aims)
    return await _apply(request, aims, form)


async def restore(request: web.Request) -> web.Response:
    """Restore an earlier policy, or the default in the settings."""
    form, history = await read_form(request), await request.app[STORE].fleet_policy.history()
    to = form.get("to", "")
    if to == "settings":
        aims = None
    elif to == "before":
        aims = _previous_aims(history)
    else:
        revision = next((revision for revision in history if str(revision.number) == to), None)
        if revision is None:
            raise UserError("This revision is no longer in the history. Reload the page.")
        aims = revision.aims
    request[AUDIT_DETAIL] = describe_aims(aims) if aims else "default"
    return await _apply(request, aims, form)


async def _apply(request: web.Request, aims: FleetObjective | None, form: Mapping[str, str]) -> web.Response:
    seen = int(form["seen"]) if form.get("seen", "").isdecimal() else None
    if not await request.app[STORE].fleet_policy.set(aims, by=request[PRINCIPAL].name, seen=seen):
        return await _page(request, aims, 409, error=_CONFLICT.format(when="since you loaded this page"))
    raise web.HTTPSeeOther("/policy?applied=1")


def describe_aims(aims: FleetObjective) -> str:
    """Return a policy's aims in one line of text."""
    name, _ = GOALS[aims.goal]
    parts = [name]
    if aims.goal is Goal.FAST:
        parts.append(f"mean delay {format_duration(aims.delay_s)}")
    else:
        parts.append(f"demand factor {aims.demand_factor:g}")
    if aims.budget_polls_per_minute is not None:
        parts.append(f"at most {aims.budget_polls_per_minute:,g} polls per min")
    parts.append(f"maximum delay {format_duration(aims.longest_wait_s)}")
    if aims.levels is not Levels.CONTINUOUS:
        parts.append(f"polling levels of base {aims.levels}")
    return ", ".join(parts)


def _parse_aims(form: Mapping[str, str]) -> FleetObjective:
    """Return the aims in a form. Raises :class:`UserError`."""
    values: dict[str, object] = {"goal": form.get("goal", ""), "levels": form.get("levels", Levels.CONTINUOUS)}
    for name in ("demand_factor", "budget_polls_per_minute"):
        if text := form.get(name, "").strip()[:_MAX_FIELD_CHARS]:
            values[name] = _parse_number(text)
    for name in ("delay_s", "longest_wait_s"):
        if text := form.get(name, "").strip()[:_MAX_FIELD_CHARS]:
            values[name] = parse_duration(text)
    try:
        return msgspec.convert(values, FleetObjective)
    except msgspec.ValidationError as error:
        raise UserError(f"Invalid policy: {error}") from error


def _parse_number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError as error:
        raise UserError(f"“{text}” is not a number.") from error


async def _page(
    request: web.Request,
    aims: FleetObjective | None = None,
    status: int = 200,
    *,
    error: str = "",
    entered: Mapping[str, str] | None = None,
) -> web.Response:
    """Return the page of the policy, whose form shows ``aims``; None means the present aims.

    ``entered`` are fields of the form as the user has entered them; they replace the values of ``aims``. ``error`` is
    the message of a failed change.
    """
    present = await get_policy(request)
    aims = aims or present.aims
    preview = await weigh_policy(request, aims)
    curves = [Curve("now", preview.now.waits_s)]
    if aims != present.aims:
        curves.append(Curve("then", preview.then.waits_s))
    budget = aims.budget_polls_per_minute
    fields = {
        "goal": aims.goal,
        "demand_factor": f"{aims.demand_factor:g}",
        "budget_polls_per_minute": "" if budget is None else f"{budget:g}",
        "delay_s": format_duration(aims.delay_s),
        "longest_wait_s": format_duration(aims.longest_wait_s),
        "levels": aims.levels,
    }
    return render(
        request,
        "policy.html",
        status,
        goals=GOALS,
        level_names=LEVELS,
        present=present,
        aims=aims,
        fields=fields | dict(entered or {}),
        is_preview=aims != present.aims,
        preview=preview,
        poll_interval_s=request.app[SETTINGS].poll_interval_s,
        picture=wait_curves_svg(curves),
        error=error,
        applied="applied" in request.query,
        describe_aims=describe_aims,
        bound_shares=bound_shares,
    )


async def _preview(
    store: Store, settings: Settings, cache: ChannelCache, aims: FleetObjective, now_s: float
) -> PolicyPreview:
    """Return the effect of ``aims`` on the current channels, compared with the effect of the present policy.

    Channels that are paused by an admin or blocked at the Unix time ``now_s`` are left out.
    """
    present, ring, rates, bounds, _ = await asyncio.gather(
        store.fleet_policy.get(),
        store.ring.view(),
        store.request_budgets.site_rates(),
        store.poll_bounds.load(BoundsSnapshot()),
        cache.refresh(),
    )
    default = settings.policy()
    before = msgspec.structs.replace(default, objective=present or default.objective)
    after = msgspec.structs.replace(default, objective=aims)

    def compute() -> tuple[list[ChannelRow], PolicyPreview, Sequence[Sequence[ChannelDelays]], Sequence[SlowChannel]]:
        rows = [row for row in list(cache.rows.values()) if not row.moved]
        rows = [row for row in rows if row.listed or cache.subscribers(row.id)]
        rows = [row for row in rows if row.paused_until_s <= now_s and not cache.is_blocked(row)]
        model = PolicyModel([_channel_load(cache, row, bounds.by_channel, now_s) for row in rows], ring, rates)
        now, then = model.outcome(before), model.outcome(after)
        preview = PolicyPreview(len(rows), len(ring.nodes), now, then, warning=one_bound_warning(then.bounds))
        changes = model.largest_delay_changes(before, after, _MAX_DELAY_CHANGES)
        return rows, preview, changes, model.slowest(after, _MAX_DELAY_CHANGES)

    # About 0.2 s of arithmetic for 100,000 channels.
    rows, preview, changes, slowest = await asyncio.to_thread(compute)
    shown = [*(change.row for group in changes for change in group), *(channel.row for channel in slowest)]
    channels = await store.channels.get_many([rows[row].id for row in shown])
    titles = {channel.id: channel.title or channel.url for channel in channels if channel is not None}
    sooner, later = (
        tuple(
            DelayChange(cid, titles[cid], cache.subscribers(cid), change.before_s, change.after_s)
            for change in group
            if (cid := rows[change.row].id) in titles
        )
        for group in changes
    )
    slow = tuple(
        SlowestChannel(cid, titles[cid], cache.subscribers(cid), channel.wait_s, channel.bound)
        for channel in slowest
        if (cid := rows[channel.row].id) in titles
    )
    return msgspec.structs.replace(preview, sooner=sooner, later=later, slowest=slow)


def _channel_load(
    cache: ChannelCache, row: ChannelRow, bounds: Mapping[ChannelId, ChannelBounds], now_s: float
) -> ChannelLoad:
    publisher_interval_s, reason = row.limits.shortest_interval(now_s)
    return ChannelLoad(
        row.id,
        cache.subscribers(row.id),
        row.update_interval_s,
        row.private,
        "" if row.private else row.site,
        bounds.get(row.id, NO_BOUNDS),
        publisher_interval_s,
        reason,
        row.rhythm,
    )


def _previous_aims(history: Sequence[Revision]) -> FleetObjective | None:
    """Return the aims that applied before the last change in ``history`` (newest first).

    None means that the default applied. Raises :class:`UserError` if there was no change.
    """
    if not history:
        raise UserError("There is no change to undo.")
    return history[1].aims if len(history) > 1 else None
