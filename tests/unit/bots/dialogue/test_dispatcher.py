"""Dialogues with requests that are answered from plain values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bots.dialogue.dry_run import DryRun
from bots.dialogue.reply import CommandOutcome
from bots.dialogue.request_handler import RequestHandler
from service.errors import BadStatus
from tests.unit.bots.fake_requests import Person, feed, page
from tests.unit.bots.sample_web import BLOG, DOWN, LIST, NEWS, visitor

LATEST = "Latest entry:\nSummer arrived\nhttps://news.example/summer"
NOTHING_CHANGED = "All right, I haven't changed anything."
NOTHING_TO_CONFIRM = (
    "I'm not waiting for an answer right now. If you mean an earlier question, please send that command again; `help` "
    "shows what I can do."
)
NO_SUCH_SUBSCRIPTION = "I can't find that subscription. `list` shows the ones you have."


def test_subscribing_to_a_polled_channel_sends_no_worker_request() -> None:
    first, second = visitor(), visitor()
    first.hear(NEWS)
    second.polled, second.entries = first.polled, first.entries
    assert second.say(NEWS) == f"Subscribed to *The News* (#1).\n{LATEST}"
    assert second.probes == 0


def test_a_repeated_subscription_is_reported_and_changes_nothing() -> None:
    person = visitor()
    person.hear(NEWS)
    assert person.say(NEWS).startswith("You're already subscribed to *The News* (#1).")
    assert len(person.follows) == 1


def test_the_only_feed_linked_from_a_page_is_subscribed_to() -> None:
    assert visitor().say("news.example").startswith("I found a feed on that page. Subscribed to *The News* (#1).")


def test_several_feeds_are_offered_until_one_is_selected() -> None:
    person = visitor()
    asked = person.say("many.example")
    assert "Which one would you like?" in asked
    assert person.say("7") == f"There's no number 7 in that list.\n{asked}", "the question stands"
    assert person.say("8") == f"There's no number 8 in that list.\n{asked}"
    assert person.say("2").startswith("Subscribed to *A Blog*")
    assert [channel.url for channel in person.follows.values()] == [BLOG]


def test_watching_a_page_without_a_feed_requires_confirmation_and_counts_as_one_url() -> None:
    person = visitor()
    assert person.say("shop.example/prices").startswith("There's no feed at https://shop.example/prices.")
    assert person.say("yes").startswith("Subscribed to *Prices*")
    assert [channel.kind for channel in person.follows.values()] == ["page"]
    assert person.new_urls == 1, "the yes is no other new URL"
    assert person.say("yes") == NOTHING_TO_CONFIRM


def test_an_error_after_confirming_a_page_names_its_url() -> None:
    person = visitor()
    person.web["page https://shop.example/prices"] = BadStatus("shop.example answered 503.", status=503)
    person.hear("shop.example/prices")
    reply = person.hear("yes")
    assert reply.outcome is CommandOutcome.FAILED
    assert "“https://shop.example/prices”" in reply.text


def test_an_error_after_selecting_a_feed_names_its_url() -> None:
    person = visitor()
    person.web[BLOG] = BadStatus("blog.example answered 503.", status=503)
    person.hear("many.example")
    assert f"“{BLOG}”" in person.say("2")


def test_a_declined_page_is_not_subscribed_to() -> None:
    person = visitor()
    person.hear("shop.example/prices")
    assert person.say("no") == NOTHING_CHANGED
    assert not person.follows


def test_a_page_and_a_part_of_it_are_separate_channels() -> None:
    person = visitor()
    person.hear("shop.example/prices")
    person.hear("yes")
    person.hear("subscribe shop.example/prices #list")
    assert [channel.url for channel in person.follows.values()] == ["https://shop.example/prices", LIST]
    assert "(#2)" in person.say("unsubscribe shop.example/prices #list")
    assert list(person.follows) == [1]


def test_subscribing_to_a_polled_page_part_sends_no_worker_request() -> None:
    person = visitor()
    person.polled = {page(LIST, "Prices").id: page(LIST, "Prices")}
    assert person.say("subscribe shop.example/prices #list").startswith("Subscribed to")
    assert person.probes == 0


def test_a_dormant_page_is_reactivated_as_a_page() -> None:
    person = visitor()
    asleep = structs.replace(page("https://shop.example/prices", "Prices"), dormant=True)
    person.polled = {asleep.id: asleep}
    assert person.say("shop.example/prices").startswith("Subscribed to")
    assert person.probes == 1


def test_subscribing_to_a_moved_channel_subscribes_to_its_successor() -> None:
    person = visitor()
    person.polled = {feed("https://old.example/feed", "").id: feed(NEWS, "The News")}
    assert person.say("https://old.example/feed").startswith(f"It has moved to {NEWS}. Subscribed to *The News* (#1).")
    person.polled[feed(NEWS, "").id] = feed(NEWS, "The News")
    assert person.say("https://old.example/feed").startswith("You're already subscribed")


def test_the_subscription_limit_applies_only_to_new_subscriptions() -> None:
    person = visitor()
    person.follows = {n: feed(f"https://{n}.example/", str(n)) for n in (1, 2, 3)}
    assert (
        person.say(NEWS)
        == "You've reached the maximum of 3 subscriptions. To make room, end one with `unsubscribe #n`."
    )
    person.polled = {channel.id: channel for channel in person.follows.values()}
    assert person.say("https://2.example/").startswith("You're already subscribed")


def test_the_limit_of_new_urls_is_reported() -> None:
    person = visitor()
    replies = [person.say(f"https://unknown-{n}.example/") for n in range(5)]
    assert replies[-1].startswith("You've reached the limit of 4 new URLs an hour.")
    assert person.probes == 4


def test_unknown_channels_and_channels_of_others_get_the_same_reply() -> None:
    person = visitor()
    person.polled = {feed(NEWS, "").id: feed(NEWS, "")}
    for line in ("unsubscribe #9", f"unsubscribe {NEWS}", "show #9", "show prices", "why all"):
        assert person.say(line) == NO_SUCH_SUBSCRIPTION


def test_stop_cancels_a_pending_question_or_reports_that_there_is_none() -> None:
    person = visitor()
    assert person.say("stop").startswith("There's nothing to cancel.")
    person.hear("forget me")
    assert person.say("stop") == NOTHING_CHANGED


def test_a_feed_is_unsubscribed_by_number_or_by_url() -> None:
    for words in ("#1", "1", NEWS, "HTTPS://NEWS.example:443/feed#top"):
        person = visitor()
        person.hear(NEWS)
        assert person.say(f"unsubscribe {words}").startswith("Unsubscribed from *The News* (#1).")
        assert not person.follows


def test_unsubscribing_from_all_channels_requires_confirmation() -> None:
    person = visitor()
    person.hear(NEWS)
    person.hear(BLOG)
    assert person.say("unsubscribe all") == "End both of your subscriptions? Reply `yes` or `no`."
    assert person.say("no") == NOTHING_CHANGED
    assert person.say("yes") == NOTHING_TO_CONFIRM, "the question is gone"
    person.hear("unsubscribe all")
    person.hear("list")
    assert person.say("yes") == NOTHING_TO_CONFIRM, "another command withdraws the question"
    person.hear("unsubscribe all")
    assert person.say("yes") == "I've ended both of your subscriptions. Send me a URL to start again."
    assert not person.follows
    assert person.say("unsubscribe all").startswith("You have no subscriptions.")


def test_list_filters_by_title_and_url() -> None:
    person = visitor()
    person.hear(NEWS)
    person.hear(BLOG)
    assert person.say("list NEWS").startswith("Subscriptions matching “NEWS” (1 of 2):\n#1 The News")
    assert person.say("list blog.example/atom").startswith(
        "Subscriptions matching “blog.example/atom” (1 of 2):\n#2 A Blog"
    )


def test_an_unsupported_url_is_refused_with_its_error() -> None:
    refused = visitor().hear("gopher://example.org/")
    assert refused.outcome is CommandOutcome.FAILED
    assert refused.text.startswith("I can't use that address.")


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
def test_invalid_search_conditions_are_refused_with_an_explanation_and_not_saved(line: str, said: str) -> None:
    person = visitor()
    assert said in person.say(line)
    assert not person.watches
    assert "There's no list to continue." in person.say("more")


@given(st.lists(st.text(max_size=60) | st.sampled_from(["many.example", "2", "yes", "unsubscribe all", NEWS])))
def test_any_message_gets_a_reply(lines: list[str]) -> None:
    person = visitor()
    for line in lines:
        assert person.say(line)


LISTED = "Only people whom the operator has listed may use this bot."
INVITED = "This bot is by invitation only. If you have an invitation code, send me `invite` followed by the code."


def stranger(**settings: object) -> Person:
    """Return a person who has asked to be forgotten before losing access to a bot with these settings."""
    person = visitor()
    person.hear("forget me")
    person.is_admitted, person.requested = False, []
    person.settings = person.settings.model_copy(update=settings)
    return person


@pytest.mark.parametrize(("who_may_use", "sentence"), [("listed", LISTED), ("invited", INVITED)])
@pytest.mark.parametrize(
    "line",
    ["list", "subscribe news.example", "forget me", "yes", "hm?", "help", "help list", "hi"],
)
def test_people_without_access_are_told_who_may_use_the_bot(line: str, who_may_use: str, sentence: str) -> None:
    person = stranger(who_may_use=who_may_use)
    reply = person.hear(line)
    assert (reply.text, reply.outcome) == (sentence, CommandOutcome.DENIED)
    assert not person.requested


@pytest.mark.parametrize("who_may_use", ["listed", "invited"])
def test_people_without_access_are_told_whom_to_contact(who_may_use: str) -> None:
    contacts = ("mailto:abuse@example.org", "https://example.org/contact")
    person = stranger(who_may_use=who_may_use, contact_addresses=contacts)
    assert person.say("list").endswith("abuse@example.org and https://example.org/contact")


def test_an_invitation_is_redeemed_only_if_the_bot_is_for_invited_people() -> None:
    assert stranger(who_may_use="listed").say("invite good") == LISTED
    person = stranger(who_may_use="invited")
    assert person.hear("invite bad").outcome is CommandOutcome.DENIED
    assert person.say("invite good").startswith("Welcome!")


@pytest.mark.parametrize("line", ["help", "help leave"])
def test_help_in_a_room_says_how_commands_are_written_there(line: str) -> None:
    room = visitor()
    assert "leave" not in room.say("help")
    room.room_nick = "Feeds"
    *_, last = room.say(line).splitlines()
    assert "`Feeds: list`" in last
    assert "`Feeds: leave`" in last


def test_a_dry_run_reimplements_every_request_of_the_request_handler() -> None:
    executed = {name for name in vars(RequestHandler) if not name.startswith("_")}
    assert executed == {name for name in vars(DryRun) if not name.startswith("_")}
    assert not issubclass(DryRun, RequestHandler)


def test_each_delivery_time_command_reports_its_setting() -> None:
    person = visitor()
    person.say("quiet 22:00-07:00")
    person.say("digest daily 08:00")
    assert person.say("quiet").startswith("Quiet hours: 22:00 to 07:00. You get a summary")
    assert person.say("digest").startswith("You get a summary of new entries every day at 08:00. Quiet hours:")
    assert person.say("timezone Berlin").startswith("Saved. Your time zone is Europe/Berlin")
    person.say("quiet presence")
    person.say("quiet off")
    assert person.say("quiet").startswith("You have no quiet hours.")


def test_a_failing_channel_is_explained_by_its_failure() -> None:
    person = visitor()
    person.say(DOWN)
    first, *others = person.say("why #1").splitlines()
    assert first.startswith("I haven't been able to read *Down* (#1) for 10 days")
    assert not any("usually reach you" in line for line in others)
    assert person.say("status").startswith("Your subscription has a problem; I'll keep trying:\n#1 Down: ")
