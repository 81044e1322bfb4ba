"""The policy page: choose aims, see what they would come to, apply them, go back."""

from collections.abc import Mapping
from typing import Final

import msgspec
from aiohttp import web

from service.console.audited import DETAIL
from service.console.curves import Curve, curves_svg
from service.console.policy import PolicyNow, WhatIf, policy_now, undone, what_if
from service.console.site import ROSTER, SETTINGS, STORE, VISITOR, render
from service.console.spans import seconds_in, span
from service.corona.policy import Aims, Goal
from service.errors import UserError
from service.store.policy import Revision

GOALS: Final[Mapping[Goal, tuple[str, str]]] = {
    Goal.LITE: ("Lite", "News reaches the average subscriber soonest, with a fixed number of polls."),
    Goal.FAST: ("Fast", "A mean delay is kept, with as few polls as that takes."),
    Goal.FAIR: ("Fair", "The average piece of news is seen soonest: who publishes rarely is asked rarely."),
    Goal.FAIR_SQRT: ("Fair-Sqrt", "Between Fair and Lite: how rarely somebody publishes counts by its root."),
    Goal.FAIR_LOG: ("Fair-Log", "Nearer to Lite: how rarely somebody publishes counts by its logarithm."),
}
_LONGEST_FIELD: Final = 40


async def page(request: web.Request) -> web.Response:
    """Show the aims; with others in the query, what they would come to."""
    now = await policy_now(request.app[STORE], request.app[SETTINGS])
    if "goal" not in request.query:
        return await _page(request, now, now.aims)
    try:
        aims = _aims(request.query)
    except UserError as error:
        return await _page(request, now, now.aims, 422, error=str(error), written=request.query)
    return await _page(request, now, aims)


async def apply(request: web.Request) -> web.Response:
    """Set what the fleet aims at."""
    form = {name: str(value) for name, value in (await request.post()).items()}
    try:
        aims = _aims(form)
    except UserError as error:
        now = await policy_now(request.app[STORE], request.app[SETTINGS])
        return await _page(request, now, now.aims, 422, error=str(error), written=form)
    request[DETAIL] = in_words(aims)
    return await _set(request, aims, form)


async def restore(request: web.Request) -> web.Response:
    """Go back to what the fleet aimed at before, or to what the settings say."""
    form = {name: str(value) for name, value in (await request.post()).items()}
    store = request.app[STORE]
    history = await store.policy.history()
    if form.get("to") == "settings":
        aims = None
    elif form.get("to") == "before":
        possible, aims = undone(history)
        if not possible:
            raise UserError("There is no change to undo.")
    else:
        aims = _revision(history, form.get("to", "")).aims
    request[DETAIL] = in_words(aims) if aims else "those of the settings"
    return await _set(request, aims, form)


def in_words(aims: Aims) -> str:
    """Return aims in one line."""
    name, _ = GOALS[aims.goal]
    said = [f"{name}, mean delay {span(aims.delay_s)}"] if aims.goal is Goal.FAST else [name]
    if aims.goal is not Goal.FAST:
        said.append(f"{aims.polls_per_channel:g} polls per channel")
    if aims.budget_polls_per_minute is not None:
        said.append(f"at most {aims.budget_polls_per_minute:,g} polls per min")
    said.append(f"longest wait {span(aims.longest_wait_s)}")
    return ", ".join(said)


def _revision(history: list[Revision], number: str) -> Revision:
    found = next((revision for revision in history if str(revision.number) == number), None)
    if found is None:
        raise UserError("That change is not kept any more. Reload the page.")
    return found


async def _set(request: web.Request, aims: Aims | None, form: Mapping[str, str]) -> web.Response:
    seen = int(form["seen"]) if form.get("seen", "").isdecimal() else None
    if not await request.app[STORE].policy.set(aims, by=request[VISITOR].name, seen=seen):
        now = await policy_now(request.app[STORE], request.app[SETTINGS])
        wrong = "Somebody else has changed the aims since you loaded this page. Look at them before you change them."
        return await _page(request, now, now.aims if aims is None else aims, 409, error=wrong)
    raise web.HTTPSeeOther("/policy?applied=1")


def _aims(form: Mapping[str, str]) -> Aims:
    """Return the aims that a form says. Raises :class:`UserError`."""
    given: dict[str, object] = {"goal": form.get("goal", "")}
    for name in ("polls_per_channel", "budget_polls_per_minute"):
        if text := form.get(name, "").strip()[:_LONGEST_FIELD]:
            given[name] = _number(text)
    for name in ("delay_s", "longest_wait_s"):
        if text := form.get(name, "").strip()[:_LONGEST_FIELD]:
            given[name] = seconds_in(text)
    try:
        return msgspec.convert(given, Aims)
    except msgspec.ValidationError as error:
        raise UserError(f"These are no aims: {error}") from error


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError as error:
        raise UserError(f"“{text}” is no number.") from error


async def _page(
    request: web.Request,
    now: PolicyNow,
    aims: Aims,
    status: int = 200,
    *,
    error: str = "",
    written: Mapping[str, str] | None = None,
) -> web.Response:
    found = await what_if(request.app[STORE], request.app[SETTINGS], request.app[ROSTER], aims)
    return render(
        request,
        "policy.html",
        status,
        goals=GOALS,
        now=now,
        aims=aims,
        fields=_fields(aims) | dict(written or {}),
        asked=aims != now.aims,
        found=found,
        poll_interval_s=request.app[SETTINGS].poll_interval_s,
        picture=curves_svg(_curves(found)),
        error=error,
        applied="applied" in request.query,
        in_words=in_words,
    )


def _fields(aims: Aims) -> dict[str, str]:
    budget = aims.budget_polls_per_minute
    return {
        "goal": aims.goal,
        "polls_per_channel": f"{aims.polls_per_channel:g}",
        "budget_polls_per_minute": "" if budget is None else f"{budget:g}",
        "delay_s": span(aims.delay_s),
        "longest_wait_s": span(aims.longest_wait_s),
    }


def _curves(found: WhatIf) -> list[Curve]:
    curves = [Curve("now", found.now.waits_s)]
    return [*curves, Curve("then", found.then.waits_s)] if found.then is not found.now else curves
