"""Dialogues with requests that are answered from plain values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bots.dialogue.request_handler import DryRun, RequestHandler
from bots.replies.conversation import (
    AccessDenied,
    ConfirmErasure,
    InvitationAccepted,
    NoPendingQuestion,
    NothingChanged,
    NothingToCancel,
    RequestFailed,
)
from bots.replies.help import HelpReply
from bots.replies.subscriptions import (
    ChooseFeed,
    ConfirmUnsubscribeAll,
    NoSuchSubscription,
    OfferPageMonitoring,
    SubscribeReply,
    SubscriptionList,
    TooManyNewUrls,
    TooManySubscriptions,
    UnsubscribeReply,
)
from service.errors import BadStatus, BadUrl
from service.model import Entry
from tests.unit.bots.fake_requests import feed, page
from tests.unit.bots.sample_web import BLOG, LIST, NEWS, visitor


def test_subscribing_to_a_polled_channel_asks_no_worker() -> None:
    first, second = visitor(), visitor()
    first.hear(NEWS)
    second.polled, second.entries = first.polled, first.entries
    reply = second.hear(NEWS)
    assert isinstance(reply, SubscribeReply)
    assert reply.latest == (Entry("a", "Summer arrived", "https://news.example/summer"),)
    assert second.probes == 0


def test_subscribing_again_says_so_and_changes_nothing() -> None:
    person = visitor()
    person.hear(NEWS)
    again = person.hear(NEWS)
    assert isinstance(again, SubscribeReply)
    assert (again.new, again.subscription.number, len(person.follows)) == (False, 1, 1)


def test_one_feed_found_through_a_page_is_taken() -> None:
    reply = visitor().hear("news.example")
    assert isinstance(reply, SubscribeReply)
    assert reply.discovered


def test_several_feeds_are_asked_about_until_one_is_picked() -> None:
    person = visitor()
    asked = person.hear("many.example")
    assert isinstance(asked, ChooseFeed)
    assert person.hear("7") == asked, "no such number: the question stands"
    picked = person.hear("2")
    assert isinstance(picked, SubscribeReply)
    assert picked.subscription.channel.url == BLOG


def test_a_page_without_a_feed_is_offered_to_be_watched_and_looked_at_only_once_more() -> None:
    person = visitor()
    assert person.hear("shop.example/prices") == OfferPageMonitoring("https://shop.example/prices")
    reply = person.hear("yes")
    assert isinstance(reply, SubscribeReply)
    assert reply.subscription.channel.kind == "page"
    assert person.new_urls == 1, "the yes is no other new URL"
    assert person.hear("yes") == NoPendingQuestion()


def test_a_page_that_cannot_be_watched_after_all_is_named() -> None:
    person = visitor()
    person.web["page https://shop.example/prices"] = BadStatus("shop.example answered 503.", status=503)
    person.hear("shop.example/prices")
    reply = person.hear("yes")
    assert isinstance(reply, RequestFailed)
    assert reply.subject == "https://shop.example/prices"


def test_a_page_that_nobody_wants_to_watch_is_let_be() -> None:
    person = visitor()
    person.hear("shop.example/prices")
    assert person.hear("no") == NothingChanged()
    assert not person.follows


def test_a_page_and_its_parts_are_channels_of_their_own() -> None:
    person = visitor()
    person.hear("shop.example/prices")
    person.hear("yes")
    person.hear("subscribe shop.example/prices #list")
    assert [channel.url for channel in person.follows.values()] == ["https://shop.example/prices", LIST]
    ended = person.hear("unsubscribe shop.example/prices #list")
    assert isinstance(ended, UnsubscribeReply)
    assert [followed.number for followed in ended.ended] == [2]


def test_a_watched_part_of_a_page_is_joined_without_asking_a_worker() -> None:
    person = visitor()
    person.polled = {page(LIST, "Prices").id: page(LIST, "Prices")}
    assert isinstance(person.hear("subscribe shop.example/prices #list"), SubscribeReply)
    assert person.probes == 0


def test_a_page_that_fell_asleep_is_woken_up_as_a_page() -> None:
    person = visitor()
    asleep = structs.replace(page("https://shop.example/prices", "Prices"), dormant=True)
    person.polled = {asleep.id: asleep}
    assert isinstance(person.hear("shop.example/prices"), SubscribeReply)
    assert person.probes == 1


def test_a_channel_that_moved_is_followed_to_where_it_is() -> None:
    person = visitor()
    person.polled = {feed("https://old.example/feed", "").id: feed(NEWS, "The News")}
    reply = person.hear("https://old.example/feed")
    assert isinstance(reply, SubscribeReply)
    assert (reply.moved, reply.subscription.channel.url) == (True, NEWS)
    person.polled[feed(NEWS, "").id] = feed(NEWS, "The News")
    again = person.hear("https://old.example/feed")
    assert isinstance(again, SubscribeReply)
    assert not again.new


def test_the_limit_of_subscriptions_is_told_but_not_to_who_has_it_already() -> None:
    person = visitor()
    person.follows = {n: feed(f"https://{n}.example/", str(n)) for n in (1, 2, 3)}
    assert person.hear(NEWS) == TooManySubscriptions(3)
    person.polled = {channel.id: channel for channel in person.follows.values()}
    assert isinstance(person.hear("https://2.example/"), SubscribeReply)


def test_the_limit_of_new_urls_is_told() -> None:
    person = visitor()
    replies = [person.hear(f"https://unknown-{n}.example/") for n in range(5)]
    assert replies[-1] == TooManyNewUrls(4)
    assert person.probes == 4


def test_not_found_and_not_yours_are_one_answer() -> None:
    person = visitor()
    person.polled = {feed(NEWS, "").id: feed(NEWS, "")}
    assert person.hear("unsubscribe #9") == person.hear(f"unsubscribe {NEWS}") == NoSuchSubscription()
    assert person.hear("show #9") == person.hear("show prices") == person.hear("why all") == NoSuchSubscription()


def test_who_wants_an_end_of_nothing_in_particular_is_told_of_what() -> None:
    person = visitor()
    assert person.hear("stop") == NothingToCancel()
    person.hear("forget me")
    assert person.hear("stop") == NothingChanged()


def test_a_feed_is_unsubscribed_by_number_or_by_url() -> None:
    for words in ("#1", "1", NEWS, "HTTPS://NEWS.example:443/feed#top"):
        person = visitor()
        person.hear(NEWS)
        assert isinstance(person.hear(f"unsubscribe {words}"), UnsubscribeReply)
        assert not person.follows


def test_unsubscribing_from_everything_asks_once() -> None:
    person = visitor()
    person.hear(NEWS)
    person.hear(BLOG)
    assert person.hear("unsubscribe all") == ConfirmUnsubscribeAll(2)
    assert person.hear("no") == NothingChanged()
    assert person.hear("yes") == NoPendingQuestion(), "the question is gone"
    person.hear("unsubscribe all")
    person.hear("list")
    assert person.hear("yes") == NoPendingQuestion(), "another command withdraws the question"
    person.hear("unsubscribe all")
    ended = person.hear("yes")
    assert isinstance(ended, UnsubscribeReply)
    assert len(ended.ended) == 2
    assert person.hear("unsubscribe all") == SubscriptionList((), 0, "")


def test_list_filters_by_title_and_url() -> None:
    person = visitor()
    person.hear(NEWS)
    person.hear(BLOG)
    by_title, by_url = person.hear("list NEWS"), person.hear("list blog.example/atom")
    assert isinstance(by_title, SubscriptionList)
    assert isinstance(by_url, SubscriptionList)
    assert [f.number for f in by_title.matches] == [1]
    assert [f.number for f in by_url.matches] == [2]


def test_what_cannot_be_watched_comes_back_as_its_error() -> None:
    refused = visitor().hear("gopher://example.org/")
    assert isinstance(refused, RequestFailed)
    assert isinstance(refused.error, BadUrl)


BAD_INPUT = {
    "": "What should I search for?",
    "colour=red": "I don't know “colour=”.",
    " ".join(f"tag=t{number}" for number in range(200)): "That's 200 conditions; the maximum is 16.",
    " ".join(f"tag=t{number}" for number in range(1000)): "That's longer than 3,000 characters",
    "tag=" + "x" * 1_000_000: "That's longer than 3,000 characters",
    "tag=" + "x" * 200: "The value of “tag” has 200 characters; the maximum is 100.",
    "tag=a\x07b": "“tag=a?b” contains an invisible character.",
    "tag=a\u202eb": "“tag=a?b” contains an invisible character.",
    '"tag=python': "A closing quotation mark is missing",
}
BAD_PATTERNS = {
    '"the of"': "These words are too common.",
    "/(/": "isn't a valid regular expression: a closing parenthesis is missing.",
    r"/(a)\1/": "isn't a regular expression I can use: invalid escape sequence",
    "/a)/": "isn't a valid regular expression: an opening parenthesis is missing.",
    "/[a/": "isn't a valid regular expression: a closing bracket is missing.",
    "/(?=a)b/": "isn't a regular expression I can use: invalid perl operator",
    "/((a{100}){100}){100}/": "isn't a regular expression I can use:",
    "/x*/": "That expression matches any text",
    "/" + "x" * 300 + "/": "That expression is longer than 200 characters.",
    "/a\x00b/": "“a?b” contains an invisible character.",
    "tag=python limit 5": "“limit” only works with `find`",
}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        *((f"find {wanted}", said) for wanted, said in BAD_INPUT.items() if wanted),
        *((f"watch {wanted}", said) for wanted, said in BAD_INPUT.items() if wanted),
        *((f"watch {wanted}", said) for wanted, said in BAD_PATTERNS.items()),
    ],
    ids=range(2 * len(BAD_INPUT) - 2 + len(BAD_PATTERNS)),
)
def test_what_cannot_be_searched_or_watched_for_is_answered_in_clear_words_and_not_kept(line: str, said: str) -> None:
    person = visitor()
    assert said in person.say(line)
    assert not person.watches
    assert "There are no more results." in person.say("more")


@given(st.lists(st.text(max_size=60) | st.sampled_from(["many.example", "2", "yes", "unsubscribe all", NEWS])))
def test_whatever_is_said_gets_an_answer(lines: list[str]) -> None:
    person = visitor()
    for line in lines:
        assert person.say(line)


@pytest.mark.parametrize("line", ["list", "subscribe news.example", "forget me", "quiet 22:00-07:00"])
def test_who_is_not_admitted_gets_nothing_done(line: str) -> None:
    person = visitor()
    person.is_admitted = False
    person.asked = ConfirmErasure()
    assert isinstance(person.hear(line), AccessDenied | ConfirmErasure)
    assert set(person.requested) <= {"is_admitted", "accept_invitation"}


def test_who_is_not_admitted_gets_help_with_contacts_and_can_send_an_invitation() -> None:
    person = visitor()
    person.is_admitted = False
    person.contact_addresses = ("mailto:abuse@example.org", "https://example.org/contact")
    assert isinstance(person.hear("help"), HelpReply)
    assert person.say("help").endswith("abuse@example.org and https://example.org/contact")
    assert person.hear("invite bad") == AccessDenied(refused=True)
    assert person.hear("invite good") == InvitationAccepted()


def test_a_dry_run_inherits_no_request_that_is_executed() -> None:
    executed = {name for name in vars(RequestHandler) if not name.startswith("_")}
    assert executed == {name for name in vars(DryRun) if not name.startswith("_")}
    assert not issubclass(DryRun, RequestHandler)
