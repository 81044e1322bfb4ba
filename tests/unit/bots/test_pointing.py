"""Commands under a message of ours: what they do not name, the message names."""

from typing import Any

import pytest

from bots.asking import (
    EndSubscription,
    EndWatch,
    Followed,
    Limits,
    MyPreferences,
    MySubscriptions,
    Request,
    ToldBy,
    WhatItTold,
)
from bots.exchange import ForgottenMessage, Incomplete, NoSuchSubscription, Reply, Unsubscribed, Unwatched, WhichOne
from bots.pointing import pointed, reacted
from service.discovery.grammar import parse_watch
from service.discovery.standing import Watch
from tests.unit.bots.talk import Person, feed

NEWS, BLOG, OTHER = (feed(f"https://{name}.example/feed", name) for name in ("news", "blog", "other"))
MINE = (Followed(1, NEWS), Followed(2, BLOG))
LIMITS = Limits(3, 4, 20, 2, 3)
ONE, TWO = WhatItTold((NEWS.id,), ()), WhatItTold((NEWS.id, BLOG.id), ())


def played(dialogue: Any, told: WhatItTold | None) -> tuple[Reply, list[Request]]:
    """How a dialogue ends, and what it asked, if the message told so."""
    asked: list[Request] = []
    answer: Any = None
    try:
        while True:
            request = dialogue.send(answer)
            asked.append(request)
            match request:
                case ToldBy():
                    answer = told
                case MySubscriptions():
                    answer = MINE
                case EndWatch(number):
                    answer = Watch("w", parse_watch("tag=python"), number)
                case MyPreferences():
                    answer = {}
                case _:
                    answer = True
    except StopIteration as end:
        return end.value, asked


@pytest.mark.parametrize("words", ["unsubscribe", "Stop", "rm", "/unsub."])
def test_under_the_message_of_one_channel_that_is_meant(words: str) -> None:
    reply, asked = played(pointed(words, "m1", None, LIMITS), ONE)
    assert reply == Unsubscribed((MINE[0],))
    assert EndSubscription(NEWS.id) in asked


def test_under_the_message_of_several_it_is_asked_which_one() -> None:
    reply, _ = played(pointed("unsubscribe", "m1", None, LIMITS), TWO)
    assert reply == WhichOne("unsubscribe #{}", MINE)


def test_a_command_that_names_its_subscription_means_that() -> None:
    reply, asked = played(pointed("unsubscribe #2", "m1", None, LIMITS), ONE)
    assert reply == Unsubscribed((MINE[1],))
    assert ToldBy("m1") not in asked


def test_what_came_of_a_watch_ends_that_watch() -> None:
    reply, _ = played(reacted("unsubscribe", "m1", LIMITS), WhatItTold((OTHER.id,), (4,)))
    assert isinstance(reply, Unwatched)


def test_a_channel_that_was_left_since_is_no_longer_anybodys() -> None:
    assert played(pointed("unsubscribe", "m1", None, LIMITS), WhatItTold((OTHER.id,), ()))[0] == NoSuchSubscription()


def test_under_a_message_that_told_nothing_we_know_a_reply_is_any_command() -> None:
    assert played(pointed("unsubscribe", "m1", None, LIMITS), None)[0] == Incomplete("unsubscribe")
    assert played(reacted("unsubscribe", "m1", LIMITS), None)[0] == ForgottenMessage()


def test_the_question_which_one_is_answered_by_a_number() -> None:
    person = Person(follows={1: NEWS, 2: BLOG})
    person.asked = WhichOne("unsubscribe #{}", MINE)
    assert "news" in person.say("7")
    assert isinstance(person.hear("2"), Unsubscribed)
    assert list(person.follows) == [1]


@pytest.mark.parametrize("words", ["mute", "set title {x} {0}", "filter deny {}", "{}"])
def test_braces_are_words_like_others(words: str) -> None:
    played(pointed(words, "m1", None, LIMITS), ONE)
