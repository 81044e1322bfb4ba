"""Export of subscriptions as OPML documents that fit into messages, and import of each of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.dialogue.opml_commands import split_into_documents
from bots.dialogue.reply import CommandOutcome
from bots.i18n.translator import get_translator
from bots.replies.formatting import MAX_MESSAGE_BYTES
from bots.replies.subscription_texts import import_result_text
from service.errors import BadStatus, LimitReached, ListOfFeeds, UploadRefused, UserError, to_fault
from service.feeds import opml_parser
from service.feeds.canonical_urls import canonical_url
from service.feeds.opml_import import FailedFeed
from service.feeds.opml_writer import OpmlDocument, OpmlSubscription
from service.users.preferences import Preferences
from tests.unit.bots.fake_requests import Person, feed, page

FEEDS = st.lists(
    st.builds(
        OpmlSubscription,
        st.integers(1, 10**6).map(lambda number: canonical_url(f"https://example.org/{number}?a=1&b=2")),
        st.text(max_size=100),
        page=st.booleans(),
    ),
    max_size=60,
    unique_by=lambda feed: feed.url,
)


@given(FEEDS)
def test_exported_documents_fit_into_messages_and_contain_each_feed_once(feeds: list[OpmlSubscription]) -> None:
    parts = split_into_documents(feeds, MAX_MESSAGE_BYTES)
    assert all(len(part.encode()) <= MAX_MESSAGE_BYTES for part in parts)
    read = [each for part in parts for each in opml_parser.parse(part.encode()).feeds]
    assert [(each.url, each.page) for each in read] == [(each.url, each.page) for each in feeds]


def test_a_feed_too_long_for_a_message_is_omitted_from_the_export() -> None:
    long = OpmlSubscription(f"https://example.org/{'x' * 5000}", "Long")
    feeds = [OpmlSubscription("https://example.org/1"), long, OpmlSubscription("https://example.org/2")]
    read = [
        each.url
        for part in split_into_documents(feeds, MAX_MESSAGE_BYTES)
        for each in opml_parser.parse(part.encode()).feeds
    ]
    assert read == ["https://example.org/1", "https://example.org/2"]


def test_an_export_contains_folders() -> None:
    alice, bob = Person(), Person()
    alice.follows = {n: feed(f"https://example.org/{n}", f"Feed {n}") for n in range(1, 4)}
    alice.preferences = {2: Preferences(folder="News"), 3: Preferences(folder="NEWS")}
    bob.say(f"import {alice.say('export')}")
    assert [each.folder for each in bob.importing] == ["", "News", "News"]


def test_an_export_can_be_imported_by_another_user() -> None:
    alice, bob = Person(), Person()
    alice.follows = {n: feed(f"https://example.org/{n}", f"Feed {n}") for n in range(1, 60)}
    alice.follows[60] = page("https://example.org/page", "A page")
    exported = alice.hear("export")
    parts = (exported.text, *exported.further_texts)
    assert len(parts) > 1
    for part in parts:
        assert bob.say(f"import {part}").startswith("I found ")
    assert [each.url for each in bob.importing] == [each.url for each in alice.follows.values()]


def test_a_long_export_is_sent_as_a_file_if_the_server_accepts_uploads() -> None:
    alice = Person(follows={n: feed(f"https://example.org/{n}", f"Feed {n}") for n in range(1, 60)})
    alice.files = "https://files.example/1/subscriptions.opml"
    reply = alice.hear("export")
    assert "59 subscriptions" in reply.text
    assert (reply.further_texts, reply.is_file) == ((alice.files,), True)
    assert [each.url for each in opml_parser.parse(alice.shared[0]).feeds] == [
        each.url for each in alice.follows.values()
    ]


def test_a_short_export_is_sent_as_a_message() -> None:
    alice = Person(follows={1: feed("https://example.org/1", "Feed")}, files="https://files.example/1")
    assert alice.say("export").startswith("<")
    assert not alice.shared


def test_an_export_whose_upload_is_refused_is_sent_as_messages_after_the_reason() -> None:
    alice = Person(follows={n: feed(f"https://example.org/{n}", f"Feed {n}") for n in range(1, 60)})
    alice.files = UploadRefused("files.example says: Daily quota reached.")
    reply = alice.hear("export")
    assert reply.text.startswith(f"Your list comes in {len(reply.further_texts)} messages")
    assert "Daily quota reached" in reply.text
    assert sum(len(opml_parser.parse(part.encode()).feeds) for part in reply.further_texts) == 59


@pytest.mark.parametrize("line", ["https://example.org/list.OPML?x=1", "subscribe https://example.org/list.opml"])
def test_a_url_with_the_extension_opml_is_imported(line: str) -> None:
    person = Person()
    listed = OpmlDocument((OpmlSubscription("https://example.org/1"),))
    person.lists = dict.fromkeys(("https://example.org/list.OPML?x=1", "https://example.org/list.opml"), listed)
    assert person.say(line).startswith("I found 1 feed in that list")
    assert person.probes == 0


def test_a_url_whose_document_is_opml_is_imported() -> None:
    person = Person(web={"https://example.org/feeds": ListOfFeeds("It is a list of feeds.")})
    person.lists = {"https://example.org/feeds": OpmlDocument((OpmlSubscription("https://example.org/1"),))}
    assert person.say("example.org/feeds").startswith("I found 1 feed in that list")


def test_a_list_at_a_url_is_fetched_by_a_worker_and_its_problems_are_reported() -> None:
    person = Person()
    listed = OpmlDocument((OpmlSubscription("https://example.org/1"),), ("Line 3: names no feed.",))
    person.lists = {"https://example.org/list.opml": listed}
    assert person.say("import <https://example.org/list.opml>").endswith("\nLine 3: names no feed.")
    assert person.importing == listed.feeds
    assert "Line 3" in person.say("import example.org/list.opml")


def test_the_url_of_a_list_counts_toward_the_limit_of_new_urls() -> None:
    person = Person()
    person.new_urls = person.settings.max_new_urls_per_hour
    person.lists = {"https://example.org/list.opml": OpmlDocument(())}
    assert person.say("import https://example.org/list.opml").startswith("You've reached the limit of 4 new URLs")


def test_invalid_lists_are_refused_with_an_explanation() -> None:
    person = Person()
    for words in ("<html></html>", "<opml><!ENTITY x 'y'></opml>", "no url"):
        assert person.hear(f"import {words}").outcome is CommandOutcome.FAILED
    assert person.say("import").startswith("`import URL`")
    assert person.say("import <opml></opml>") == "I found no feeds in that list."
    assert not person.importing


def _failures() -> list[FailedFeed]:
    gone = BadStatus("example.org answered 404.", status=404)
    full = LimitReached("You've reached the maximum of {count} subscriptions.", count=200)
    problem = FailedFeed(to_fault(UserError("Line 3: “Cats” names no feed.")))
    return [
        FailedFeed(to_fault(gone), "https://example.org/a", 5),
        FailedFeed(to_fault(full), "https://example.org/b", 6),
        problem,
    ]


def test_the_import_result_lists_failed_feeds_with_reasons() -> None:
    said = import_result_text(3, 1, _failures(), get_translator("en"), has_file=False)
    assert said.startswith(
        "Your list is imported: 3 new subscriptions. You were already subscribed to 1. 3 couldn't be added:"
    )
    assert "“https://example.org/a”" in said
    assert "You've reached the maximum of 200 subscriptions." in said
    assert said.endswith("\nLine 3: “Cats” names no feed.")


def test_the_import_result_leaves_the_reasons_to_a_file() -> None:
    said = import_result_text(3, 0, _failures(), get_translator("en"), has_file=True)
    assert said == "Your list is imported: 3 new subscriptions. 3 couldn't be added:"


def test_the_progress_of_an_import_is_shown_and_the_import_can_be_stopped() -> None:
    person = Person(importing=tuple(OpmlSubscription(f"https://example.org/{n}") for n in range(1_000)))
    told = "Importing your list: 3 of 1,003 feeds done (new: 1, already subscribed: 0, failed: 2)."
    assert person.say("import status") == told
    assert person.say("importieren Zustand") == told
    assert person.say("status").startswith(f"{told}\n")
    assert person.say("import stop").startswith("I've stopped the import.")
    assert person.importing == ()
    assert person.say("import stop") == person.say("import status") == "No list is being imported right now."


@pytest.mark.timeout(20)
def test_many_subscriptions_are_exported_in_linear_time() -> None:
    feeds = [OpmlSubscription(f"https://example.org/{number}/{'x' * 500}") for number in range(20_000)]
    parts = split_into_documents(feeds, MAX_MESSAGE_BYTES)
    assert sum(part.count("<outline") for part in parts) == len(feeds)
