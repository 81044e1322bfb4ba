"""Dispatcher of commands: executes one command of a user by requests, and returns the reply.

The only state between two commands is the question in the last reply, if that was a :class:`QuestionReply`; the caller
keeps it. A command may refer to a message of the bot, as a reply to it (XEP-0461) or a reaction (XEP-0444). If such a
command names no subscription, it is for the channel that the message was about. If the message was about several of the
user's channels, the bot asks which one is meant. If the message was about none of the user's channels, but was sent
because of a saved search, the command is for the saved search.
"""

from typing import NoReturn, cast

from bots.commands.parser import (
    DEFAULT_ENTRY_COUNT,
    LEAVE,
    Command,
    NumberCommand,
    SubscribeCommand,
    SubscriptionTarget,
    UnknownCommand,
    VerbCommand,
    YesNoCommand,
    incomplete_command_template,
    is_read_only,
    parse,
    parse_entry_count,
)
from bots.dialogue import searches, settings, settings_parser, subscriptions
from bots.dialogue.request_handler import MessageReferences, Requests
from bots.replies.base import QuestionReply, Reply
from bots.replies.conversation import (
    AccessDenied,
    CommandSuggestion,
    ConfirmErasure,
    ErasureReply,
    InvitationAccepted,
    InvitationCodeMissing,
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
    ConfirmWatch,
    Listing,
    NoSuchSavedSearch,
    SavedSearchDeleted,
    SearchResults,
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
from service.errors import CoronetError
from service.feeds.urls import canonical_url, page_url
from service.store.delivery.outbox import ANNOUNCEMENTS


async def answer(
    requests: Requests,
    text: str,
    pending_question: QuestionReply | None = None,
    *,
    reply_to_id: str = "",
    is_reaction: bool = False,
    can_manage: bool = True,
) -> Reply:
    """Execute the command in ``text`` and return the reply.

    A user without access to the bot can only send an invitation code, and commands that need no request, like `help`.

    Args:
        requests: The methods that read and change the user's data, or only record the changes (dry run).
        text: The command; any text is accepted.
        pending_question: The question of the bot that the user has not answered yet.
        reply_to_id: The id of the bot's message that the user replied or reacted to, or "".
        is_reaction: Whether ``text`` stands for a reaction.
        can_manage: Whether the user may change subscriptions and settings; most occupants of a room may not.
    """
    command = parse(text)
    if not can_manage and (not is_read_only(command) or text.strip().lower() in LEAVE):
        return ManagersOnly()
    if not await requests.is_admitted():
        requests = cast("Requests", _UnadmittedRequests(requests))
    try:
        if can_manage and (reply_to_id or is_reaction):
            resolved = await _resolve_target(requests, text, reply_to_id, is_reaction=is_reaction)
            if isinstance(resolved, Reply):
                return resolved
            command = resolved
        return await _execute(requests, command, pending_question if can_manage and not is_reaction else None)
    except _AccessRequired:
        return AccessDenied()
    except CoronetError as error:
        return RequestFailed(error, _subject(command, pending_question))


class _AccessRequired(Exception):
    """Raised if a command of a user without access to the bot needs a request."""


class _UnadmittedRequests:
    """The requests of a user without access to the bot.

    Every method raises :class:`_AccessRequired`, except the method that accepts an invitation.
    """

    def __init__(self, requests: Requests) -> None:
        self.limits = requests.limits
        self.contact_addresses = requests.contact_addresses
        self.accept_invitation = requests.accept_invitation

    def __getattr__(self, name: str) -> NoReturn:
        raise _AccessRequired(name)


async def _resolve_target(requests: Requests, text: str, message_id: str, *, is_reaction: bool) -> Command | Reply:
    """Return the command in ``text``, completed with the subscription that a message of the bot was about.

    ``message_id`` is the id of this message. A reply is returned instead of a command if the message is no longer
    known, is about no subscription of the user, or is about several.
    """
    template = incomplete_command_template(text)
    references = await requests.message_references(message_id) if template or is_reaction else None
    if references is None and is_reaction:
        return MessageForgotten()
    if references is None or not template:
        return parse(text)
    subscribed = await requests.subscriptions()
    candidates = tuple(each for each in subscribed if each.channel.id in references.channels)
    if len(candidates) == 1:
        return parse(template.format(candidates[0].number))
    if candidates:
        return ChooseSubscription(template, candidates)
    return _command_about_no_channel(template, references) or NoSuchSubscription()


def _command_about_no_channel(template: str, references: MessageReferences) -> Command | None:
    """Return the command for a message of the bot that was about no channel of the user; None if there is none.

    Such a message is an announcement, or was sent because of a saved search. ``template`` is the command for a channel.
    """
    if references.channels == (ANNOUNCEMENTS,) and template.startswith(("unsubscribe", "set #{} mute on")):
        return VerbCommand("announcements", words="off")
    if template.startswith("unsubscribe") and len(references.watches) == 1:
        return VerbCommand("unwatch", SubscriptionTarget(number=references.watches[0]))
    return None


def _subject(command: Command, pending_question: QuestionReply | None) -> str:
    """Return the URL that a command is about, as the user wrote it; "" if the command is about no URL."""
    match command:
        case SubscribeCommand(url):
            return url
        case YesNoCommand(yes=True) if isinstance(pending_question, OfferPageMonitoring):
            return pending_question.url
        case _:
            return ""


async def _execute(requests: Requests, command: Command, pending_question: QuestionReply | None) -> Reply:  # noqa: C901, PLR0911, PLR0912 - one arm per verb is the clearest table
    match command:
        case SubscribeCommand(""):
            return MissingArgument("subscribe")
        case SubscribeCommand(url, selector, initial_settings):
            return await subscriptions.subscribe(
                requests, page_url(url, selector), initial_settings, as_page=bool(selector)
            )
        case VerbCommand("unsubscribe", target) if target.everything:
            subscribed = await requests.subscriptions()
            return ConfirmUnsubscribeAll(len(subscribed)) if subscribed else SubscriptionList((), 0, "")
        case VerbCommand("unsubscribe", target):
            return await subscriptions.unsubscribe(requests, target)
        case VerbCommand("list", words=words):
            return await subscriptions.list_all(requests, words)
        case VerbCommand("show", target, words):
            return await subscriptions.show(requests, target, parse_entry_count(words))
        case VerbCommand("why", target):
            return await subscriptions.why(requests, target)
        case VerbCommand("status"):
            return await subscriptions.status(requests)
        case VerbCommand("export"):
            return await subscriptions.export(requests)
        case VerbCommand("import", words=words):
            return await subscriptions.import_list(requests, words)
        case VerbCommand("pause", target):
            return await settings.pause(requests, target)
        case VerbCommand("resume", target):
            return await settings.resume(requests, target)
        case VerbCommand("set", target, words):
            return await settings.change_preferences(requests, target, words)
        case VerbCommand("filter", target, words):
            return await settings.edit_filters(requests, target, words)
        case VerbCommand("quiet", words=words):
            return await settings.change_user_settings(requests, words, settings_parser.set_quiet_hours)
        case VerbCommand("digest", words=words):
            return await settings.change_user_settings(requests, words, settings_parser.set_digest)
        case VerbCommand("timezone", words=words):
            return await settings.change_user_settings(requests, words, settings_parser.set_time_zone)
        case VerbCommand("language", words=words):
            return await settings.change_language(requests, words)
        case VerbCommand("announcements", words=words):
            return await settings.change_announcements(requests, words)
        case VerbCommand("find", words=words):
            return await searches.find(requests, words)
        case VerbCommand("discover", words=words):
            return await searches.discover(requests, words)
        case VerbCommand("more"):
            return await searches.more(requests, pending_question)
        case VerbCommand("watch", words=words):
            return await searches.watch(requests, words)
        case VerbCommand("unwatch", target) if not target.number:
            return MissingArgument("unwatch")
        case VerbCommand("unwatch", target):
            deleted = await requests.unwatch(target.number)
            return SavedSearchDeleted(deleted) if deleted is not None else NoSuchSavedSearch()
        case VerbCommand("invite", words=words) if not words.strip():
            return InvitationCodeMissing()
        case VerbCommand("invite", words=words):
            return (
                InvitationAccepted() if await requests.accept_invitation(words.strip()) else AccessDenied(refused=True)
            )
        case VerbCommand("forget"):
            return ConfirmErasure()
        case VerbCommand("help", words=words):
            return HelpReply(words, requests.contact_addresses)
        case VerbCommand("cancel"):
            return NothingChanged() if pending_question else NothingToCancel()
        case VerbCommand():
            return WelcomeReply()
        case NumberCommand(number):
            return await _pick(requests, number, pending_question)
        case YesNoCommand(yes):
            return await _decide(requests, pending_question, yes=yes)
        case UnknownCommand(_, suggestion):
            return CommandSuggestion(suggestion) if suggestion else UnrecognizedInput()


async def _pick(requests: Requests, number: int, pending_question: QuestionReply | None) -> Reply:
    """Choose an option of the pending question by its number, and return the reply.

    If no option has the number, the question is repeated. If no question is pending, the reply shows the latest entries
    of the subscription with this number.
    """
    match pending_question:
        case ChooseFeed(options, initial_settings) if 1 <= number <= len(options):
            return await subscriptions.subscribe(requests, canonical_url(options[number - 1].url), initial_settings)
        case (SearchResults() | Listing()) as results if 1 <= number <= len(results.hits):
            channel = results.hits[number - 1].channel
            return await subscriptions.subscribe(requests, channel.url, (), as_page=channel.kind == "page")
        case ChooseSubscription(command, options) if any(option.number == number for option in options):
            return await _execute(requests, parse(command.format(number)), None)
        case ChooseFeed() | SearchResults() | Listing() | ChooseSubscription():
            return pending_question
        case _:
            return await subscriptions.show(requests, SubscriptionTarget(number=number), DEFAULT_ENTRY_COUNT)


async def _decide(requests: Requests, pending_question: QuestionReply | None, *, yes: bool) -> Reply:
    """Execute the offer of the pending question if ``yes``, otherwise cancel the question; return the reply."""
    match pending_question if yes else None:
        case ConfirmErasure():
            return ErasureReply(await requests.forget_everything())
        case ConfirmUnsubscribeAll():
            return await subscriptions.unsubscribe_all(requests)
        case OfferPageMonitoring(url, initial_settings):
            return await subscriptions.probe(requests, url, initial_settings, as_page=True)
        case ConfirmWatch(text):
            return await searches.watch(requests, text, is_confirmed=True)
        case CommandSuggestion(command):
            return await _execute(requests, parse(command), None)
        case _:
            return NothingChanged() if pending_question else NoPendingQuestion()
