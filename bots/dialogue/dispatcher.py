"""What somebody writes → the reply, by way of requests.

The only state between two commands is the question that was asked last, and that is simply the last reply if it was a
:class:`QuestionReply`.

A command can point at a message of ours: by a reply to it (XEP-0461) or a reaction (XEP-0444). What it needs and does
not name, the message names: the channel it told of. If it told of several of the person's channels, they are asked
which one; if of none, but it came of something they watch for, that is meant.
"""

from typing import NoReturn, cast

import msgspec

from bots.commands import parser as commands
from bots.dialogue import settings as preferring
from bots.dialogue import settings_parser
from bots.dialogue import subscriptions as subscribing
from bots.dialogue.request_handler import Requests
from bots.replies.base import QuestionReply, Reply
from bots.replies.conversation import (
    AccessDenied,
    CommandSuggestion,
    ConfirmErasure,
    ErasureReply,
    InvitationAccepted,
    ManagersOnly,
    NoPendingQuestion,
    NothingChanged,
    NothingToCancel,
    RequestFailed,
    UnrecognizedInput,
    WelcomeReply,
)
from bots.replies.help import HelpReply, MissingArgument
from bots.replies.search import (
    NoMoreResults,
    NoSuchSavedSearch,
    SavedSearchDeleted,
    SavedSearchList,
    SearchResults,
    SearchSaved,
)
from bots.replies.subscriptions import (
    ChooseFeed,
    ChooseSubscription,
    ConfirmUnsubscribeAll,
    MessageForgotten,
    NoSuchSubscription,
    OfferPageMonitoring,
    SubscriptionList,
)
from service.discovery.query_parser import parse_query, parse_watch
from service.errors import CoronetError
from service.feeds.urls import canonical_url, looks_like_url, page_url


async def answer(
    requests: Requests,
    text: str,
    asked: QuestionReply | None = None,
    *,
    points_at: str = "",
    reacted: bool = False,
    may_change: bool = True,
) -> Reply:
    """Carry out what a person wrote, whose last unanswered question was ``asked``.

    ``points_at`` is the id of the message of ours to which they replied, or ``reacted`` by what stands for this text.
    Who may not change anything, like most people in a room, is refused what would. A person who is not admitted can
    only send an invitation; what is answered without a request, like help, is answered to everybody.
    """
    command = commands.parse(text)
    if not may_change and (not commands.is_harmless(command) or text.strip().lower() in commands.LEAVE):
        return ManagersOnly()
    if not await requests.is_admitted():
        requests = cast("Requests", _StrangersRequests(requests))
    try:
        if may_change and (points_at or reacted):
            meant = await _pointed(requests, text, points_at, reacted=reacted)
            if isinstance(meant, Reply):
                return meant
            command = meant
        return await _carry_out(requests, command, asked if may_change and not reacted else None)
    except _NotAllowed:
        return AccessDenied()
    except CoronetError as error:
        return RequestFailed(error, _subject(command, asked))


class _NotAllowed(Exception):
    """Somebody who is not admitted made a request."""


class _StrangersRequests:
    """Requests of somebody who is not admitted: all but an invitation are refused."""

    def __init__(self, requests: Requests) -> None:
        self.limits = requests.limits
        self.accept_invitation = requests.accept_invitation

    def __getattr__(self, name: str) -> NoReturn:
        raise _NotAllowed(name)


async def _pointed(requests: Requests, text: str, message_id: str, *, reacted: bool) -> commands.Command | Reply:
    """Return the command that was meant by what was written under a message of ours, or what to answer."""
    line = commands.lacking(text)
    told = await requests.told_by(message_id) if line or reacted else None
    if told is None and reacted:
        return MessageForgotten()
    if told is None or not line:
        return commands.parse(text)
    mine = await requests.subscriptions()
    meant = tuple(followed for followed in mine if followed.channel.id in told.channels)
    if len(meant) == 1:
        return commands.parse(line.format(meant[0].number))
    if meant:
        return ChooseSubscription(line, meant)
    if line.startswith("unsubscribe") and len(told.watches) == 1:
        return commands.VerbCommand("unwatch", commands.SubscriptionTarget(number=told.watches[0]))
    return NoSuchSubscription()


def _subject(command: commands.Command, asked: QuestionReply | None) -> str:
    """Return the URL that a command is about, as the person knows it; "" if it is about none."""
    match command:
        case commands.SubscribeCommand(url):
            return url
        case commands.YesNoCommand(yes=True) if isinstance(asked, OfferPageMonitoring):
            return asked.url
        case _:
            return ""


async def _carry_out(requests: Requests, command: commands.Command, asked: QuestionReply | None) -> Reply:  # noqa: C901, PLR0911, PLR0912 - one arm per verb is the clearest table
    match command:
        case commands.SubscribeCommand(""):
            return MissingArgument("subscribe")
        case commands.SubscribeCommand(url, selector, settings):
            return await subscribing.subscribe(requests, page_url(url, selector), settings, as_page=bool(selector))
        case commands.VerbCommand("unsubscribe", target) if target.everything:
            mine = await requests.subscriptions()
            return ConfirmUnsubscribeAll(len(mine)) if mine else SubscriptionList((), 0, "")
        case commands.VerbCommand("unsubscribe", target):
            return await subscribing.unsubscribe(requests, target)
        case commands.VerbCommand("list", words=words):
            return await subscribing.list_all(requests, words)
        case commands.VerbCommand("show", target, words):
            return await subscribing.show(requests, target, commands.count(words))
        case commands.VerbCommand("why", target):
            return await subscribing.why(requests, target)
        case commands.VerbCommand("status"):
            return await subscribing.status(requests)
        case commands.VerbCommand("export"):
            return await subscribing.export(requests)
        case commands.VerbCommand("import", words=words):
            return await subscribing.import_list(requests, words)
        case commands.VerbCommand("pause", target):
            return await preferring.pause(requests, target)
        case commands.VerbCommand("resume", target):
            return await preferring.resume(requests, target)
        case commands.VerbCommand("set", target, words):
            return await preferring.prefer(requests, target, words)
        case commands.VerbCommand("filter", target, words):
            return await preferring.filter_entries(requests, target, words)
        case commands.VerbCommand("quiet", words=words):
            return await preferring.settle(requests, words, settings_parser.quieted)
        case commands.VerbCommand("digest", words=words):
            return await preferring.settle(requests, words, settings_parser.gathered)
        case commands.VerbCommand("timezone", words=words):
            return await preferring.settle(requests, words, settings_parser.in_zone)
        case commands.VerbCommand("language", words=words):
            return await preferring.speak(requests, words)
        case commands.VerbCommand("find", words=words):
            return await _search(requests, words)
        case commands.VerbCommand("more"):
            return await _more(requests, asked) if isinstance(asked, SearchResults) else NoMoreResults()
        case commands.VerbCommand("watch", words=words):
            return await _watch(requests, words)
        case commands.VerbCommand("unwatch", target) if not target.number:
            return MissingArgument("unwatch")
        case commands.VerbCommand("unwatch", target):
            ended = await requests.unwatch(target.number)
            return SavedSearchDeleted(ended) if ended is not None else NoSuchSavedSearch()
        case commands.VerbCommand("invite", words=words):
            return (
                InvitationAccepted() if await requests.accept_invitation(words.strip()) else AccessDenied(refused=True)
            )
        case commands.VerbCommand("forget"):
            return ConfirmErasure()
        case commands.VerbCommand("help", words=words):
            return HelpReply(words)
        case commands.VerbCommand("cancel"):
            return NothingChanged() if asked else NothingToCancel()
        case commands.VerbCommand():
            return WelcomeReply()
        case commands.NumberCommand(number):
            return await _pick(requests, number, asked)
        case commands.YesNoCommand(yes):
            return await _decide(requests, asked, yes=yes)
        case commands.UnknownCommand(_, suggestion):
            return CommandSuggestion(suggestion) if suggestion else UnrecognizedInput()


async def _pick(requests: Requests, number: int, asked: QuestionReply | None) -> Reply:
    """Take one of what was offered; the question stands if there is none of this number."""
    match asked:
        case ChooseFeed(options, settings) if 1 <= number <= len(options):
            return await subscribing.subscribe(requests, canonical_url(options[number - 1].url), settings)
        case SearchResults(findings=findings) if 1 <= number <= len(findings):
            channel = findings[number - 1].channel
            return await subscribing.subscribe(requests, channel.url, (), as_page=channel.kind == "page")
        case ChooseSubscription(command, options) if any(option.number == number for option in options):
            return await _carry_out(requests, commands.parse(command.format(number)), None)
        case ChooseFeed() | SearchResults() | ChooseSubscription():
            return asked
        case _:
            return await subscribing.show(requests, commands.SubscriptionTarget(number=number), commands.USUALLY_SHOWN)


async def _decide(requests: Requests, asked: QuestionReply | None, *, yes: bool) -> Reply:
    """Do what was asked about, or leave it."""
    match asked if yes else None:
        case ConfirmErasure():
            return ErasureReply(await requests.forget_everything())
        case ConfirmUnsubscribeAll():
            return await subscribing.unsubscribe_all(requests)
        case OfferPageMonitoring(url, settings):
            return await subscribing.probe(requests, url, settings, as_page=True)
        case CommandSuggestion(command):
            return await _carry_out(requests, commands.parse(command), None)
        case _:
            return NothingChanged() if asked else NoPendingQuestion()


async def _search(requests: Requests, wanted: str) -> Reply:
    if not wanted.strip():
        return MissingArgument("find")
    query = parse_query(wanted)
    # One more than is shown tells whether there is more.
    found = await requests.search(msgspec.structs.replace(query, limit=query.limit + 1))
    return SearchResults(wanted, query, found[: query.limit], 0, more=len(found) > query.limit)


async def _more(requests: Requests, asked: SearchResults) -> Reply:
    """Ask for as many as were shown and more: which of all that match come first is not said."""
    shown, limit = asked.findings, asked.query.limit
    found = await requests.search(msgspec.structs.replace(asked.query, limit=2 * len(shown) + limit + 1))
    fresh = tuple(finding for finding in found if finding not in shown)
    if not fresh:
        return NoMoreResults()
    return SearchResults(asked.wanted, asked.query, (*shown, *fresh[:limit]), len(shown), more=len(fresh) > limit)


async def _watch(requests: Requests, wanted: str) -> Reply:
    if not wanted.strip():
        return SavedSearchList(await requests.watches())
    if "=" not in wanted and looks_like_url(wanted):
        return CommandSuggestion(f"subscribe {wanted.strip()}")
    return SearchSaved(await requests.watch(parse_watch(wanted)))
