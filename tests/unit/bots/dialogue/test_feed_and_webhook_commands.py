"""Addresses of feeds and webhooks: what transcripts do not show."""

from msgspec import structs

from service.model import ChannelId
from service.settings import Settings
from service.store.delivery.webhooks import Webhook, WebhookState
from service.users.preferences import Preferences
from tests.unit.bots.fake_requests import Person, feed

NEWS = feed("https://news.example/feed", "The News")


def follower(public: set[ChannelId] | None = None) -> Person:
    return Person(follows={1: NEWS}, preferences={1: Preferences(folder="Fun & games")}, public=public or set())


def test_the_feed_of_a_folder_is_found_by_its_name_in_any_case() -> None:
    assert "/feeds/token0.atom?folder=Fun+%26+games\n" in follower().say("atom fun & GAMES")


def test_the_feed_of_a_public_channel_has_an_address_for_everybody() -> None:
    assert f"/channels/{NEWS.id}.atom" in follower({NEWS.id}).say("atom #1")
    assert "/channels/" not in follower().say("atom #1")


def test_without_a_public_address_of_the_console_there_are_no_feeds() -> None:
    person = follower()
    person.settings = Settings()
    assert "console_public_url" in person.say("atom")


def test_a_room_has_no_webhook() -> None:
    person = follower()
    person.room_nick = "coronet"
    assert "directly" in person.say("webhook https://example.org/hook")
    assert person.hook is None


def test_a_failing_webhook_is_shown_with_the_reason() -> None:
    person = follower()
    person.say("webhook https://example.org/hook")
    assert isinstance(person.hook, Webhook)
    person.hook = structs.replace(person.hook, state=WebhookState(3, 1.0, 2.0, "It answered 500."))
    text = person.say("webhook")
    assert "It answered 500." in text
    assert "2 updates are waiting" in text
    assert "whsec" not in text


def test_an_address_without_a_scheme_is_an_https_address() -> None:
    person = follower()
    assert "https://example.org/hook" in person.say("webhook example.org/hook")
    assert "can't use that address" in person.say("webhook !")
