"""Commands in replies and reactions to a message: a missing target is taken from the message."""

import pytest

from bots.dialogue.read_requests import MessageReferences
from bots.dialogue.reply import CommandOutcome, Reply
from service.discovery.queries.query_parser import parse_watch
from service.discovery.queries.saved_searches import SavedSearch
from tests.unit.bots.fake_requests import Person, feed

NEWS, BLOG, OTHER = (feed(f"https://{name}.example/feed", name) for name in ("news", "blog", "other"))
ONE, TWO = MessageReferences((NEWS.id,), ()), MessageReferences((NEWS.id, BLOG.id), ())


def played(words: str, told: MessageReferences | None, *, is_reaction: bool = False) -> tuple[Reply, list[str]]:
    """The reply to what is written under a message, and what was requested, if the message told so."""
    person = Person(follows={1: NEWS, 2: BLOG}, told={"m1": told} if told else {})
    person.watches = {4: SavedSearch("w", parse_watch("tag=python"), 4)}
    return person.hear(words, reply_to_id="m1", is_reaction=is_reaction), person.requested


@pytest.mark.parametrize("words", ["unsubscribe", "Stop", "rm", "/unsub."])
def test_a_reply_to_a_message_about_one_channel_targets_that_channel(words: str) -> None:
    reply, asked = played(words, ONE)
    assert reply.text.startswith("Unsubscribed from *news* (#1).")
    assert "unsubscribe" in asked


def test_a_reply_to_a_message_about_several_channels_asks_which_one() -> None:
    reply, _ = played("unsubscribe", TWO)
    assert reply.text.startswith("That message was about several channels.")
    assert list(reply.options) == ["1", "2"]


def test_an_explicit_target_overrides_the_channel_of_the_message() -> None:
    reply, asked = played("unsubscribe #2", ONE)
    assert reply.text.startswith("Unsubscribed from *blog* (#2).")
    assert "message_references" not in asked


def test_a_reaction_to_a_saved_search_match_deletes_the_saved_search() -> None:
    reply, _ = played("unsubscribe", MessageReferences((OTHER.id,), (4,)), is_reaction=True)
    assert reply.text.startswith("Deleted your saved search")


def test_a_reply_about_a_channel_unsubscribed_since_finds_no_subscription() -> None:
    assert played("unsubscribe", MessageReferences((OTHER.id,), ()))[0].text.startswith(
        "I can't find that subscription."
    )


def test_a_reply_to_an_unknown_message_is_a_plain_command_and_a_reaction_is_rejected() -> None:
    assert played("unsubscribe", None)[0].text.startswith("`unsubscribe #3` or `unsubscribe URL`")
    assert played("unsubscribe", None, is_reaction=True)[0].text.startswith("I no longer know")


def test_the_question_for_a_channel_is_answered_with_a_number() -> None:
    person = Person(follows={1: NEWS, 2: BLOG})
    person.told = {"m1": TWO}
    person.hear("unsubscribe", reply_to_id="m1")
    assert "news" in person.say("7")
    assert person.say("2").startswith("Unsubscribed from *blog*")
    assert list(person.follows) == [1]


@pytest.mark.parametrize(("words", "refused"), [("unsubscribe", True), ("leave", True), ("list", False)])
def test_users_without_permission_to_manage_can_send_only_read_commands(words: str, refused: bool) -> None:  # noqa: FBT001 - a column
    person = Person(follows={1: NEWS}, told={"m1": ONE})
    reply = person.hear(words, reply_to_id="m1", can_manage=False)
    assert (reply.outcome is CommandOutcome.DENIED) is refused
    assert list(person.follows) == [1]


@pytest.mark.parametrize("words", ["mute", "set title {x} {0}", "filter deny {}", "{}"])
def test_braces_in_commands_raise_no_error(words: str) -> None:
    played(words, ONE)
