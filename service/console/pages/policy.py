"""The fleet's aims: as they are, what others would come to, their history, and the way back; as page and in the API."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from aiohttp import web

from service.console.audit_middleware import DETAIL
from service.console.auth.roles import look, rule
from service.console.channel_cache import Roster, Row
from service.console.charts import Curve, curves_svg
from service.console.formatting import seconds_in, span
from service.console.openapi import Operations
from service.console.pages.policy_preview import Fleet, Move, Outcome, Weighed
from service.console.rendering import ROSTER, SETTINGS, STORE, VISITOR, form_of, render
from service.corona.fleet_policy import NO_BOUNDS, ChannelBounds, FleetObjective, Goal
from service.errors import UserError
from service.model import ChannelId
from service.settings import Settings
from service.store import Store
from service.store.coordination.fleet_policy import BoundsSnapshot, Revision

GOALS: Final[Mapping[Goal, tuple[str, str]]] = {
    Goal.LITE: ("Lite", "News reaches the average subscriber soonest, with a fixed number of polls."),
    Goal.FAST: ("Fast", "A mean delay is kept, with as few polls as that takes."),
    Goal.FAIR: ("Fair", "The average piece of news is seen soonest: who publishes rarely is asked rarely."),
    Goal.FAIR_SQRT: ("Fair-Sqrt", "Between Fair and Lite: how rarely somebody publishes counts by its root."),
    Goal.FAIR_LOG: ("Fair-Log", "Nearer to Lite: how rarely somebody publishes counts by its logarithm."),
}
_LONGEST_FIELD: Final = 40
_MOVED_SHOWN: Final = 5
_OUTDATED: Final = "Somebody else has changed the aims {when}. Look at them before you change them."

operation = OPERATIONS = Operations()


class PolicyNow(msgspec.Struct, frozen=True):
    """What the fleet aims at: what was ``set``, or the settings' (``usual``).

    ``revision`` is the number of the last change, 0 if there was none; ``history`` has the latest, newest first.
    """

    aims: FleetObjective
    set: bool
    usual: FleetObjective
    revision: int
    history: tuple[Revision, ...]


class Moved(msgspec.Struct, frozen=True):
    """A channel whose news would come sooner or later: the mean time to the poll that sees it, in seconds."""

    channel: ChannelId
    title: str
    subscribers: int
    before_s: float
    after_s: float


class WhatIf(msgspec.Struct, frozen=True):
    """What the present aims come to on so many channels that are polled, and what others would.

    ``sooner`` and ``later`` name the channels that subscribers would feel most.
    """

    channels: int
    nodes: int
    now: Outcome
    then: Outcome
    sooner: tuple[Moved, ...] = ()
    later: tuple[Moved, ...] = ()


class SetPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to aim at; null for what the settings say.

    ``seen`` is the revision that this was decided upon: if there is a later one, that stays. Null overrides any.
    """

    aims: FleetObjective | None
    seen: int | None = None


@operation("GET", "/policy", look("fleet"))
async def get_policy(request: web.Request) -> PolicyNow:
    """What the fleet aims at, and the latest changes of that."""
    store, usual = request.app[STORE], request.app[SETTINGS].policy().objective
    aims, history = await asyncio.gather(store.fleet_policy.get(), store.fleet_policy.history())
    return PolicyNow(aims or usual, aims is not None, usual, history[0].number if history else 0, tuple(history))


@operation("PUT", "/policy", rule("fleet"), 409)
async def put_policy(request: web.Request, wanted: SetPolicy) -> PolicyNow:
    """Change what the fleet aims at."""
    request[DETAIL] = msgspec.json.encode(wanted.aims).decode()
    return await _set(request, wanted.aims, wanted.seen)


@operation("POST", "/policy/undo", rule("fleet"), 409, 422)
async def undo_policy(request: web.Request) -> PolicyNow:
    """Undo the last change of the fleet's aims."""
    now = await get_policy(request)
    return await _set(request, _before(now.history), now.revision)


async def _set(request: web.Request, aims: FleetObjective | None, seen: int | None) -> PolicyNow:
    if not await request.app[STORE].fleet_policy.set(aims, by=request[VISITOR].name, seen=seen):
        raise web.HTTPConflict(text=_OUTDATED.format(when="meanwhile"))
    return await get_policy(request)


@operation("POST", "/policy/what-if", look("fleet"))
async def weigh_policy(request: web.Request, wanted: FleetObjective) -> WhatIf:
    """Tell what other aims would come to on the present channels; nothing is changed."""
    return await _what_if(request.app[STORE], request.app[SETTINGS], request.app[ROSTER], wanted)


async def page(request: web.Request) -> web.Response:
    """Show the aims; with others in the query, what they would come to."""
    if "goal" not in request.query:
        return await _page(request)
    try:
        return await _page(request, _aims(request.query))
    except UserError as error:
        return await _page(request, status=422, error=str(error), written=request.query)


async def apply(request: web.Request) -> web.Response:
    """Set what the fleet aims at."""
    form = await form_of(request)
    try:
        aims = _aims(form)
    except UserError as error:
        return await _page(request, status=422, error=str(error), written=form)
    request[DETAIL] = in_words(aims)
    return await _apply(request, aims, form)


async def restore(request: web.Request) -> web.Response:
    """Go back to what the fleet aimed at before, or to what the settings say."""
    form, history = await form_of(request), await request.app[STORE].fleet_policy.history()
    to = form.get("to", "")
    if to == "settings":
        aims = None
    elif to == "before":
        aims = _before(history)
    else:
        found = next((revision for revision in history if str(revision.number) == to), None)
        if found is None:
            raise UserError("That change is not kept any more. Reload the page.")
        aims = found.aims
    request[DETAIL] = in_words(aims) if aims else "those of the settings"
    return await _apply(request, aims, form)


async def _apply(request: web.Request, aims: FleetObjective | None, form: Mapping[str, str]) -> web.Response:
    seen = int(form["seen"]) if form.get("seen", "").isdecimal() else None
    if not await request.app[STORE].fleet_policy.set(aims, by=request[VISITOR].name, seen=seen):
        return await _page(request, aims, 409, error=_OUTDATED.format(when="since you loaded this page"))
    raise web.HTTPSeeOther("/policy?applied=1")


def in_words(aims: FleetObjective) -> str:
    """Return aims in one line."""
    name, _ = GOALS[aims.goal]
    said = [f"{name}, mean delay {span(aims.delay_s)}"] if aims.goal is Goal.FAST else [name]
    if aims.goal is not Goal.FAST:
        said.append(f"{aims.polls_per_channel:g} polls per channel")
    if aims.budget_polls_per_minute is not None:
        said.append(f"at most {aims.budget_polls_per_minute:,g} polls per min")
    said.append(f"longest wait {span(aims.longest_wait_s)}")
    return ", ".join(said)


def _aims(form: Mapping[str, str]) -> FleetObjective:
    """Return the aims that a form says. Raises :class:`UserError`."""
    given: dict[str, object] = {"goal": form.get("goal", "")}
    for name in ("polls_per_channel", "budget_polls_per_minute"):
        if text := form.get(name, "").strip()[:_LONGEST_FIELD]:
            given[name] = _number(text)
    for name in ("delay_s", "longest_wait_s"):
        if text := form.get(name, "").strip()[:_LONGEST_FIELD]:
            given[name] = seconds_in(text)
    try:
        return msgspec.convert(given, FleetObjective)
    except msgspec.ValidationError as error:
        raise UserError(f"These are no aims: {error}") from error


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError as error:
        raise UserError(f"“{text}” is no number.") from error


async def _page(
    request: web.Request,
    aims: FleetObjective | None = None,
    status: int = 200,
    *,
    error: str = "",
    written: Mapping[str, str] | None = None,
) -> web.Response:
    """Return the page with these aims in its form, or else the present ones."""
    now = await get_policy(request)
    aims = aims or now.aims
    found = await weigh_policy(request, aims)
    curves = [Curve("now", found.now.waits_s)]
    if found.then is not found.now:
        curves.append(Curve("then", found.then.waits_s))
    budget = aims.budget_polls_per_minute
    fields = {
        "goal": aims.goal,
        "polls_per_channel": f"{aims.polls_per_channel:g}",
        "budget_polls_per_minute": "" if budget is None else f"{budget:g}",
        "delay_s": span(aims.delay_s),
        "longest_wait_s": span(aims.longest_wait_s),
    }
    return render(
        request,
        "policy.html",
        status,
        goals=GOALS,
        now=now,
        aims=aims,
        fields=fields | dict(written or {}),
        asked=aims != now.aims,
        found=found,
        poll_interval_s=request.app[SETTINGS].poll_interval_s,
        picture=curves_svg(curves),
        error=error,
        applied="applied" in request.query,
        in_words=in_words,
    )


async def _what_if(store: Store, settings: Settings, roster: Roster, aims: FleetObjective) -> WhatIf:
    """Return what aims would come to on the present channels, nodes and sites' rates."""
    present, nodes, rates, bounds, _ = await asyncio.gather(
        store.fleet_policy.get(),
        store.ring.nodes(),
        store.request_budgets.site_rates(),
        store.poll_bounds.load(BoundsSnapshot()),
        roster.look(),
    )
    usual = settings.policy()
    before = msgspec.structs.replace(usual, objective=present or usual.objective)
    after = msgspec.structs.replace(usual, objective=aims)

    def weigh() -> tuple[list[Row], WhatIf, Sequence[Sequence[Move]]]:
        rows = [row for row in list(roster.rows.values()) if not row.moved]
        rows = [row for row in rows if row.listed or roster.subscribers(row.id)]
        fleet = Fleet([_weighed(roster, row, bounds.of) for row in rows], len(nodes), rates)
        now = fleet.outcome(before)
        if before == after:
            return rows, WhatIf(len(rows), len(nodes), now, now), ((), ())
        outcome = WhatIf(len(rows), len(nodes), now, fleet.outcome(after))
        return rows, outcome, fleet.moved(before, after, _MOVED_SHOWN)

    # Some 0.2 s of arithmetic for 100,000 channels.
    rows, found, moves = await asyncio.to_thread(weigh)
    channels = await store.channels.get_many([rows[move.place].id for some in moves for move in some])
    titles = {channel.id: channel.title or channel.url for channel in channels if channel is not None}
    sooner, later = (
        tuple(
            Moved(cid, titles[cid], roster.subscribers(cid), move.before_s, move.after_s)
            for move in some
            if (cid := rows[move.place].id) in titles
        )
        for some in moves
    )
    return msgspec.structs.replace(found, sooner=sooner, later=later)


def _weighed(roster: Roster, row: Row, bounds: Mapping[ChannelId, ChannelBounds]) -> Weighed:
    site, own = "" if row.private else row.site, bounds.get(row.id, NO_BOUNDS)
    return Weighed(roster.subscribers(row.id), row.update_interval_s, row.private, site, own)


def _before(history: Sequence[Revision]) -> FleetObjective | None:
    """Return what held before the last change, None for the settings. Raises :class:`UserError` if there was none."""
    if not history:
        raise UserError("There is no change to undo.")
    return history[1].aims if len(history) > 1 else None
