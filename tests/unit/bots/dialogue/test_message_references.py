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
def test_under_the_message_of_one_channel_that_is_meant(words: str) -> None:
    reply, asked = played(words, ONE)
    assert reply.text.startswith("Unsubscribed from *news* (#1).")
    assert "unsubscribe" in asked


def test_under_the_message_of_several_it_is_asked_which_one() -> None:
    reply, _ = played("unsubscribe", TWO)
    assert reply.text.startswith("That message was about several channels.")
    assert list(reply.options) == ["1", "2"]


def test_a_command_that_names_its_subscription_means_that() -> None:
    reply, asked = played("unsubscribe #2", ONE)
    assert reply.text.startswith("Unsubscribed from *blog* (#2).")
    assert "message_references" not in asked


def test_what_came_of_a_watch_ends_that_watch() -> None:
    reply, _ = played("unsubscribe", MessageReferences((OTHER.id,), (4,)), is_reaction=True)
    assert reply.text.startswith("Deleted your saved search")


def test_a_channel_that_was_left_since_is_no_longer_anybodys() -> None:
    assert played("unsubscribe", MessageReferences((OTHER.id,), ()))[0].text.startswith(
        "I can't find that subscription."
    )


def test_under_a_message_that_told_nothing_we_know_a_reply_is_any_command() -> None:
    assert played("unsubscribe", None)[0].text.startswith("`unsubscribe #3` or `unsubscribe URL`")
    assert played("unsubscribe", None, is_reaction=True)[0].text.startswith("I no longer know")


def test_the_question_which_one_is_answered_by_a_number() -> None:
    person = Person(follows={1: NEWS, 2: BLOG})
    person.told = {"m1": TWO}
    person.hear("unsubscribe", reply_to_id="m1")
    assert "news" in person.say("7")
    assert person.say("2").startswith("Unsubscribed from *blog*")
    assert list(person.follows) == [1]


@pytest.mark.parametrize(("words", "refused"), [("unsubscribe", True), ("leave", True), ("list", False)])
def test_who_may_change_nothing_may_only_ask(words: str, refused: bool) -> None:  # noqa: FBT001 - a column
    person = Person(follows={1: NEWS}, told={"m1": ONE})
    reply = person.hear(words, reply_to_id="m1", can_manage=False)
    assert (reply.outcome is CommandOutcome.DENIED) is refused
    assert list(person.follows) == [1]


@pytest.mark.parametrize("words", ["mute", "set title {x} {0}", "filter deny {}", "{}"])
def test_braces_are_words_like_others(words: str) -> None:
    played(words, ONE)
