"""What was seen is held for who asks the same again, for a while, and not without end."""

from service.feeds.wire import Findings
from service.model import Channel, Validators
from service.net.fetch import Fetched
from service.store.requests import Probe
from workers.looks import Look, Looks


def _look(url: str) -> Look:
    fetched = Fetched(
        200, url, None, {}, Validators(), private=False, permanent_url=None, took_s=0.1, retry_after_s=None
    )
    return Look(Channel("a" * 40, url), fetched, Findings(), discovered=False)


def test_a_look_is_for_who_asks_the_same_and_only_once() -> None:
    looks, look = Looks(), _look("https://example.org/")
    looks.put(Probe("https://example.org/", keep=False), look, 100.0)
    assert looks.take(Probe("https://example.net/"), 101.0) is None
    assert looks.take(Probe("https://example.org/", as_page=True), 101.0) is None
    assert looks.take(Probe("https://example.org/"), 101.0) is look
    assert looks.take(Probe("https://example.org/"), 101.0) is None


def test_what_was_seen_long_ago_is_not_what_is_there() -> None:
    looks = Looks()
    looks.put(Probe("https://example.org/"), _look("https://example.org/"), 100.0)
    assert looks.take(Probe("https://example.org/"), 800.0) is None


def test_of_many_looks_the_latest_are_held() -> None:
    looks = Looks()
    for number in range(40):
        looks.put(Probe(f"https://example.org/{number}"), _look(f"https://example.org/{number}"), 100.0)
    held = [number for number in range(40) if looks.take(Probe(f"https://example.org/{number}"), 100.0)]
    assert held == list(range(24, 40))
