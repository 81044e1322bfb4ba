"""Dialogues about the user's account with the bot: invitation codes, deletion of all data, help and greetings."""

from bots.commands.parser import VerbCommand
from bots.dialogue.reply import CommandOutcome, Option, Reply, misunderstanding
from bots.dialogue.request_handler import Requests
from bots.replies.greetings_and_refusals import WELCOME
from bots.replies.help_texts import help_list


async def show_help(requests: Requests, command: VerbCommand) -> Reply:
    """Show the help text for the verb that the user asked about, or the list of all commands."""
    contacts = requests.settings.contact_addresses
    return Reply(help_list(command.words, contacts, requests.room_nick, requests.translator))


async def welcome(requests: Requests, _command: VerbCommand) -> Reply:
    """Reply to a greeting by explaining what the bot does."""
    return misunderstanding(requests.translator.gettext(WELCOME))


async def accept_invitation(requests: Requests, command: VerbCommand) -> Reply:
    """Redeem an invitation code."""
    translator, code = requests.translator, command.words.strip()
    if not code:
        return misunderstanding(
            translator.gettext("If you've been given an invitation code, send it like this: `invite ABC123`.")
        )
    if await requests.accept_invitation(code):
        return Reply(
            translator.gettext("Welcome! Send me the address of a site or feed to subscribe to it, or `help`.")
        )
    return Reply(
        translator.gettext(
            "That invitation code is wrong or no longer valid. Please ask whoever runs this bot for a new one."
        ),
        CommandOutcome.DENIED,
    )


async def forget(requests: Requests, _command: VerbCommand) -> Reply:
    """Ask the user to confirm the deletion of all their data."""
    text = requests.translator.gettext(
        "Delete everything I know about you? Your subscriptions, saved searches, settings and unsent messages will "
        "be gone for good. If you might want your subscriptions again, send `export` first. Reply `yes` or `no`."
    )
    return Reply(text, options={"yes": Option(_forget_everything)})


async def _forget_everything(requests: Requests) -> Reply:
    """Delete all data of the user, except restrictions that admins have imposed on the user."""
    kept_days = await requests.forget_everything()
    if not kept_days:
        return Reply(
            requests.translator.gettext(
                "I've deleted everything about you. Goodbye! If you ever write to me again, we'll start afresh."
            )
        )
    return Reply(
        requests.translator.gettext(
            "I've deleted everything about you, except the limits that an admin set for you: I keep those for "
            "{days} days. Goodbye! If you ever write to me again, we'll start afresh.",
            days=kept_days,
        )
    )
