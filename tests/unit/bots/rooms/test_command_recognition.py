"""Recognition of commands in rooms."""

import pytest

from bots.rooms.command_recognition import recognize_command
from bots.xmpp.events import MessageReceived

ROOM = "lounge@rooms.example"


def received(text: str, *, is_reaction: bool = False, can_manage: bool = True) -> MessageReceived:
    return MessageReceived(
        ROOM, f"{ROOM}/alice", "1", text, "", wants_receipt=False, is_reaction=is_reaction, can_manage=can_manage
    )


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("Coronet: list", "list"),
        ("@coronet, list", "list"),
        ("Coronet", "help"),
        ("Coronets: list", None),
        ("list", None),
    ],
)
def test_a_message_that_begins_with_the_nick_is_a_command(text: str, command: str | None) -> None:
    recognized = recognize_command(received(text), "Coronet", "")
    assert (recognized.text if recognized is not None else None) == command


def test_a_reply_to_a_message_of_the_bot_is_a_command_about_this_message() -> None:
    recognized = recognize_command(received("pause"), "Coronet", "own-id")
    assert recognized is not None
    assert (recognized.text, recognized.reply_to_id, recognized.bot_nick) == ("pause", "own-id", "Coronet")


def test_only_reactions_of_managers_to_messages_of_the_bot_count() -> None:
    assert recognize_command(received("pause", is_reaction=True), "Coronet", "own-id") is not None
    assert recognize_command(received("pause", is_reaction=True, can_manage=False), "Coronet", "own-id") is None
    assert recognize_command(received("pause", is_reaction=True), "Coronet", "") is None
