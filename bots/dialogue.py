"""Command → Reply, sans-IO: a generator that yields what it needs to know or done, and returns what to say.

Whoever drives it sends each :data:`Request`'s result back in, or throws the CoronetError that met
it. The only state between two commands is the question that was asked last, and that is simply the
last reply if it was a :data:`Question`.
"""

from collections.abc import Generator
from typing import Any

import msgspec

from bots import carrying, commands, preferring
from bots.asking import (
    AcceptInvitation,
    AddWatch,
    AskWhy,
    CheckHealth,
    EndSubscription,
    EndWatch,
    Followed,
    ForgetEverything,
    LatestEntries,
    Limits,
    MySubscriptions,
    MyWatches,
    NodeOf,
    Probe,
    Request,
    Search,
)
from bots.exchange import (
    Admitted,
    Choose,
    Confirm,
    DidYouMean,
    Explained,
    Failed,
    Forgotten,
    Found,
    Greeted,
    Incomplete,
    LetBe,
    Listing,
    NoSuchSubscription,
    NoSuchWatch,
    NotAdmitted,
    NothingAsked,
    NothingMore,
    NothingToCancel,
    NotUnderstood,
    OfferPage,
    Question,
    ReallyForget,
    Reasoned,
    Reply,
    Shown,
    StatusReport,
    Unsubscribed,
    Unwatched,
    Watches,
    Watching,
    WhichOne,
)
from bots.mine import meant
from bots.settling import settled, spoken_with
from bots.subscribing import probed, subscribed
from service.discovery.grammar import Finding, parse_query, parse_watch
from service.errors import CoronetError
from service.feeds.urls import canonical_url, looks_like_url, page_url

Dialogue = Generator[Request, Any, Reply]
"""What comes back for each request is stated at its class; a generator cannot say it in types."""


def converse(command: commands.Command, asked: Question | None, limits: Limits) -> Dialogue:
    """Carry out one command of one user, whose last unanswered question was ``asked``. Never raises a CoronetError."""
    try:
        return (yield from _carry_out(command, asked, limits))
    except CoronetError as error:
        return Failed(error, _subject(command, asked))


def _carry_out(command: commands.Command, asked: Question | None, limits: Limits) -> Dialogue:  # noqa: C901, PLR0911, PLR0912 - one arm per command is the clearest table
    match command:
        case commands.Subscribe(""):
            return Incomplete("subscribe")
        case commands.Subscribe(url, selector, wishes):
            return (yield from subscribed(page_url(url, selector), wishes, limits, as_page=bool(selector)))
        case commands.Unsubscribe(target):
            return (yield from _unsubscribe(target))
        case commands.Enter(code):
            return Admitted() if (yield AcceptInvitation(code.strip())) else NotAdmitted(refused=True)
        case commands.Export():
            return (yield from carrying.exported())
        case commands.Import():
            return (yield from carrying.imported(command, limits))
        case commands.ForgetMe():
            return ReallyForget()
        case commands.Answer(yes=True) if isinstance(asked, ReallyForget):
            return Forgotten((yield ForgetEverything()))
        case commands.Pause(target):
            return (yield from preferring.paused(target))
        case commands.Resume(target):
            return (yield from preferring.resumed(target))
        case commands.Set():
            return (yield from preferring.preferred(command))
        case commands.Filter():
            return (yield from preferring.filtered(command))
        case commands.UnsubscribeAll():
            mine = yield MySubscriptions()
            return Confirm(len(mine)) if mine else Listing((), 0, "")
        case commands.List(wanted):
            return (yield from _list(wanted))
        case commands.Find(wanted):
            return (yield from _search(wanted))
        case commands.More():
            return (yield from _more(asked)) if isinstance(asked, Found) else NothingMore()
        case commands.Watch(wanted):
            return (yield from _watch(wanted))
        case commands.Unwatch(number):
            return (yield from _unwatch(number))
        case commands.Show(target, count):
            return (yield from _show(target, count))
        case commands.Why(target):
            return (yield from _why(target))
        case commands.Status():
            return (yield from _status())
        case commands.Quiet() | commands.Digest() | commands.Timezone():
            return (yield from settled(command))
        case commands.Language():
            return (yield from spoken_with(command))
        case commands.Help(topic):
            return Explained(topic)
        case commands.Greet():
            return Greeted()
        case commands.Pick(number) if isinstance(asked, Choose):
            return (yield from _pick(number, asked, limits))
        case commands.Pick(number) if isinstance(asked, Found):
            return (yield from _pick_found(number, asked, limits))
        case commands.Pick(number) if isinstance(asked, WhichOne):
            return (yield from _pick_one(number, asked, limits))
        case commands.Pick(number):
            return (yield from _show(commands.Target(number=number), commands.USUALLY_SHOWN))
        case commands.Answer(yes) if isinstance(asked, Confirm):
            return (yield from _unsubscribe_all()) if yes else LetBe()
        case commands.Answer(yes=True) if isinstance(asked, OfferPage):
            return (yield from probed(Probe(asked.url, as_page=True), asked.wishes))
        case commands.Answer(yes=True) if isinstance(asked, DidYouMean):
            return (yield from _carry_out(commands.parse(asked.command), None, limits))
        case commands.Cancel() if asked is None:
            return NothingToCancel()
        case commands.Answer() | commands.Cancel():
            return LetBe() if asked else NothingAsked()
        case commands.Unknown(_, suggestion):
            return DidYouMean(suggestion) if suggestion else NotUnderstood()


def _subject(command: commands.Command, asked: Question | None) -> str:
    """Return the URL that a command is about, as the person knows it; "" if it is about none."""
    match command:
        case commands.Subscribe(url):
            return url
        case commands.Answer(yes=True) if isinstance(asked, OfferPage):
            return asked.url
        case _:
            return ""


def _pick(number: int, asked: Choose, limits: Limits) -> Dialogue:
    if not 1 <= number <= len(asked.options):
        return asked
    return (yield from subscribed(canonical_url(asked.options[number - 1].url), asked.wishes, limits))


def _search(wanted: str) -> Dialogue:
    if not wanted.strip():
        return Incomplete("find")
    query = parse_query(wanted)
    # One more than is shown tells whether there is more.
    found: tuple[Finding, ...] = yield Search(msgspec.structs.replace(query, limit=query.limit + 1))
    return Found(wanted, query, found[: query.limit], 0, more=len(found) > query.limit)


def _more(asked: Found) -> Dialogue:
    """Ask for as many as were shown and more: which of all that match come first is not said."""
    shown, limit = asked.findings, asked.query.limit
    found: tuple[Finding, ...] = yield Search(msgspec.structs.replace(asked.query, limit=2 * len(shown) + limit + 1))
    fresh = tuple(finding for finding in found if finding not in shown)
    if not fresh:
        return NothingMore()
    return Found(asked.wanted, asked.query, (*shown, *fresh[:limit]), len(shown), more=len(fresh) > limit)


def _pick_found(number: int, asked: Found, limits: Limits) -> Dialogue:
    if not 1 <= number <= len(asked.findings):
        return asked
    channel = asked.findings[number - 1].channel
    return (yield from subscribed(channel.url, (), limits, as_page=channel.kind == "page"))


def _pick_one(number: int, asked: WhichOne, limits: Limits) -> Dialogue:
    if all(option.number != number for option in asked.options):
        return asked
    return (yield from _carry_out(commands.parse(asked.command.format(number)), None, limits))


def _watch(wanted: str) -> Dialogue:
    if not wanted.strip():
        return Watches((yield MyWatches()))
    if "=" not in wanted and looks_like_url(wanted):
        return DidYouMean(f"subscribe {wanted.strip()}")
    return Watching((yield AddWatch(parse_watch(wanted))))


def _unwatch(number: int) -> Dialogue:
    if not number:
        return Incomplete("unwatch")
    ended = yield EndWatch(number)
    return Unwatched(ended) if ended is not None else NoSuchWatch()


def _find(target: commands.Target) -> Generator[Request, Any, Followed | None]:
    """Return the subscription that is meant."""
    found = yield from meant(target)
    return found[0] if found else None


def _unsubscribe(target: commands.Target) -> Dialogue:
    if target == commands.Target():
        return Incomplete("unsubscribe")
    found = yield from _find(target)
    if found is None or not (yield EndSubscription(found.channel.id)):
        return NoSuchSubscription()
    return Unsubscribed((found,))


def _unsubscribe_all() -> Dialogue:
    mine: tuple[Followed, ...] = yield MySubscriptions()
    for followed in mine:
        yield EndSubscription(followed.channel.id)
    return Unsubscribed(mine)


def _list(wanted: str) -> Dialogue:
    mine: tuple[Followed, ...] = yield MySubscriptions()
    needle = wanted.casefold()
    found = tuple(f for f in mine if needle in f.channel.title.casefold() or needle in f.channel.url.casefold())
    return Listing(found, len(mine), wanted)


def _show(target: commands.Target, count: int) -> Dialogue:
    if target == commands.Target():
        return Incomplete("show")
    found = yield from _find(target)
    if found is None:
        return NoSuchSubscription()
    return Shown(found, (yield LatestEntries(found.channel.id, count)))


def _why(target: commands.Target) -> Dialogue:
    if target == commands.Target():
        return Incomplete("why")
    found = yield from _find(target)
    if found is None:
        return NoSuchSubscription()
    reason = yield AskWhy(found.channel.id)
    return Reasoned(found, reason, (yield NodeOf(found.channel.id)))


def _status() -> Dialogue:
    mine: tuple[Followed, ...] = yield MySubscriptions()
    health = yield CheckHealth(tuple(followed.channel.id for followed in mine))
    failing = tuple((f, *health.failing[f.channel.id]) for f in mine if f.channel.id in health.failing)
    return StatusReport(len(mine), health.workers, failing)
