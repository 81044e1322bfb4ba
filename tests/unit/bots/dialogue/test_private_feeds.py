"""Subscriptions with credentials: where they are refused, and which further requests they are used for."""

import pytest
from pydantic import SecretStr

from bots.dialogue.reply import CommandOutcome
from service.feeds.canonical_urls import protected_url
from service.model import FeedLink
from service.store.coordination.worker_requests import ProbeReply
from tests.unit.bots.fake_requests import Person, feed, page
from tests.unit.bots.sample_web import GUARDED, visitor

LOGIN = "login alice secret"
SITE = "https://guarded.example/"


def test_a_room_gets_no_login_and_the_publisher_no_request() -> None:
    room = visitor()
    room.room_nick = "coronet"
    reply = room.hear(f"subscribe {GUARDED} {LOGIN}")
    assert reply.outcome is CommandOutcome.FAILED
    assert "Everyone in this room can read that login" in reply.text
    assert (room.probes, room.follows) == (0, {})


def test_without_a_key_no_login_is_taken() -> None:
    person = visitor()
    person.settings = person.settings.model_copy(update={"credentials_key": SecretStr("")})
    assert "haven't set up their encryption" in person.say(f"subscribe {GUARDED} {LOGIN}")
    assert (person.probes, person.follows) == (0, {})


@pytest.mark.parametrize("words", ["login alice", ".price login alice secret", "header Host: x"])
def test_an_unusable_login_gets_into_no_url_and_no_reply(words: str) -> None:
    person = visitor()
    reply = person.say(f"subscribe {GUARDED} {words}")
    assert "Right after the address" in reply
    assert "secret" not in reply
    assert person.probes == 0


def _guard(person: Person, url: str, found: ProbeReply) -> None:
    person.guarded[url] = (person.guarded[GUARDED][0], found)


def test_a_page_behind_a_login_is_monitored_with_the_login() -> None:
    person = visitor()
    own = protected_url(SITE, "own")
    _guard(person, SITE, ProbeReply(page=True))
    _guard(person, f"page {SITE}", ProbeReply(page(own, "Guarded page")))
    assert "Shall I monitor the page itself" in person.say(f"subscribe {SITE} {LOGIN}")
    assert "stored encrypted" in person.say("yes")
    assert [channel.url for channel in person.follows.values()] == [own]


@pytest.mark.parametrize(
    ("url", "followed"), [(GUARDED, protected_url(GUARDED, "own")), ("https://news.example/feed", None)]
)
def test_the_login_is_used_for_a_feed_of_the_same_origin_only(url: str, followed: str | None) -> None:
    person = visitor()
    _guard(person, SITE, ProbeReply(choices=(FeedLink(url, "One"), FeedLink("https://guarded.example/b", "Two"))))
    person.say(f"subscribe {SITE} {LOGIN}")
    assert ("stored encrypted" in person.say("1")) is (followed is not None)
    assert [channel.url for channel in person.follows.values()] == [followed or url]


def test_a_shared_feed_is_found_by_its_url_unless_a_public_channel_exists() -> None:
    person = visitor()
    assert "Subscribed to *Common*" in person.say("subscribe https://common.example/feed")
    other = visitor()
    public = feed("https://common.example/feed", "Public")
    other.polled[public.id] = public
    assert "Subscribed to *Public*" in other.say("subscribe https://common.example/feed")
