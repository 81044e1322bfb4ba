"""Folders and filters in conversations: settings for a folder, lists by folder, and previews of filters."""

import pytest

from bots.dialogue.reply import CommandOutcome
from service.model import Entry
from service.users.preferences import FOR_ALL, MAX_FOLDERS, NO_PREFERENCES, Preferences, folder_number
from service.users.quiet_hours_and_digests import DigestSchedule
from tests.unit.bots.fake_requests import Person, feed, page

NEWS = folder_number("World news")


@pytest.fixture
def person() -> Person:
    """A user with three subscriptions, of which the first two are in a folder."""
    follows = {number: feed(f"https://{name}.example/", name) for number, name in enumerate(("aa", "bb", "cc"), 1)}
    mine = Person(follows=follows)
    assert "folder: World news" in mine.say("set #1 folder World news")
    assert "folder: WORLD NEWS" in mine.say("set #2 folder WORLD NEWS")
    return mine


def listed(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#")]


def test_a_list_names_each_folder_once_and_can_be_limited_to_one(person: Person) -> None:
    everything = person.say("list")
    assert listed(everything) == ["#3 cc", "#1 aa", "#2 bb"]
    assert everything.casefold().count("*world news*") == 1
    text = person.say("list world news")
    assert text.startswith("Folder *World news* (2 of 3):")
    assert listed(text) == ["#1 aa", "#2 bb"]
    assert listed(person.say("list bb")) == ["#2 bb"], "a word that names no folder is searched for"
    assert "*World news*: 2" in person.say("list folders")
    assert "*World news*: 2" in person.say("liste ordner")


def test_the_name_of_a_folder_wins_over_a_text_in_titles(person: Person) -> None:
    person.say("set #3 folder aa")
    assert listed(person.say("list AA")) == ["#3 cc"]


def test_a_subscription_leaves_its_folder(person: Person) -> None:
    assert person.say("set #1 folder off").endswith("folder: off")
    assert listed(person.say("list world news")) == ["#2 bb"]
    person.say("unsubscribe #2")
    assert person.say("list folders").startswith("You have no folders yet.")


@pytest.mark.parametrize("name", ["", "3", "#12", "all", "alle"])
def test_a_folder_cannot_have_a_name_that_means_something_else(person: Person, name: str) -> None:
    assert "be called" in person.say(f"set #3 folder {name}")
    assert not person.preferences.get(3, NO_PREFERENCES).folder


def test_the_name_of_a_folder_is_one_short_line(person: Person) -> None:
    person.say(f"set #3 folder {'x' * 500}")
    assert len(person.preferences[3].folder) == 100


def test_a_folder_is_set_when_subscribing(person: Person) -> None:
    assert "folder: Blogs" in person.say("set #3 folder Blogs")
    assert "A folder contains single subscriptions" in person.say("set all folder Blogs")
    assert "A folder contains single subscriptions" in person.say("set Blogs folder Blogs")


def test_settings_of_a_folder_hold_for_subscriptions_that_come_into_it_later(person: Person) -> None:
    assert person.say("set world news edits off").startswith("Saved for the folder *World news*:")
    person.say("set #3 folder World news")
    assert "edits: off (default)" in person.say("set #3")
    assert person.preferences[NEWS] == Preferences(folder="World news", edits=False)
    person.say("set #3 edits on")
    assert "edits: on\n" in person.say("set #3")
    assert person.say("set World news edits default").endswith("edits: on (default)")
    assert person.preferences[NEWS] == NO_PREFERENCES, "settings without any value are deleted"


def test_a_setting_whose_name_is_a_folder_is_still_a_setting(person: Person) -> None:
    person.say("set #3 folder text")
    assert person.say("set text 500").startswith("Saved for all subscriptions:")
    assert person.say("set text edits off").startswith("Saved for the folder *text*:")
    assert person.say("set text").startswith("Settings for the folder *text*:")


@pytest.mark.parametrize("setting", ["title x", "latest 3", "when < 20"])
def test_settings_of_single_subscriptions_are_refused_for_a_folder(person: Person, setting: str) -> None:
    before = dict(person.preferences)
    assert person.hear(f"set World news {setting}").outcome is CommandOutcome.FAILED
    assert person.preferences == before


def test_a_muted_folder_mutes_its_subscriptions(person: Person) -> None:
    assert "mute: on" in person.say("mute world news")
    assert listed(person.say("list")) == ["#3 cc", "#1 aa (muted)", "#2 bb (muted)"]
    assert "because its folder is muted" in person.say("unmute #1")
    assert "mute: off" in person.say("unmute World News")
    assert "You'll hear from *aa* (#1) again" in person.say("unmute #1")


def test_a_folder_is_paused_and_resumed(person: Person) -> None:
    assert "*World news* (2) is paused" in person.say("pause world news")
    assert set(person.paused) == {person.follows[1].id, person.follows[2].id}
    assert "Everything in *World news* is active again" in person.say("resume World news")
    assert not person.paused
    assert "Nothing in *World news* is paused" in person.say("resume World news")
    assert "can't find that subscription" in person.say("pause nonsense")


def test_a_digest_of_a_folder_is_stored_for_the_folder_only(person: Person) -> None:
    assert person.say("digest daily 09:00").startswith("Saved. You'll get a summary")
    assert "digest: every day at 08:00" in person.say("digest world news daily 8:00")
    assert person.preferences[NEWS].digest == DigestSchedule("day", 8 * 60)
    assert person.user_settings.digest == DigestSchedule("day", 9 * 60)
    assert "digest: every day at 08:00" in person.say("digest World news")
    assert "digest: every day at 08:00 (default)" in person.say("set #1")
    assert "digest: every day at 09:00 (default)" in person.say("set #3")
    assert "digest: right away" in person.say("zusammenfassung World news aus")
    assert "digest: every day at 09:00 (default)" in person.say("digest World news default")
    assert "don't understand" in person.say("digest World news sometimes")
    assert "digest daily" in person.say("set all digest weekly")


def test_the_number_of_folders_with_settings_is_limited(person: Person) -> None:
    for number in range(MAX_FOLDERS):
        person.preferences[-2 - number] = Preferences(folder=f"f{number}", muted=True)
    assert f"settings for {MAX_FOLDERS} folders" in person.say("mute World news")
    assert NEWS not in person.preferences


def test_the_filters_of_a_folder_are_edited_and_mentioned(person: Person) -> None:
    assert "Filters for the folder *World news*:\n1. deny ads OR tag:sponsored" in person.say(
        "filter world news deny ads OR tag:sponsored"
    )
    assert "already have" in person.say("filter World news deny tag:sponsored OR ads")
    assert "filters for its folder" in person.say("filter #1")
    assert "still apply" not in person.say("filter #3")
    assert "Removed all filters for the folder *World news*" in person.say("filter World news off")
    assert "has no filters" in person.say("filter World news")
    assert "don't understand “world”" in person.say("filter World news maybe")


def entries(count: int, first: str = "") -> tuple[Entry, ...]:
    return tuple(Entry(f"{first}{n}", f"{first}story {n}", tags=("odd",) if n % 2 else ()) for n in range(count))


def test_a_new_filter_shows_what_it_would_have_hidden(person: Person) -> None:
    person.entries = {person.follows[1].id: entries(30)}
    text = person.say("filter #1 deny tag:odd")
    assert "It would have hidden 10 of the latest 20 entries:\n• story 1\n• story 3\n• story 5\nand 7 more" in text
    assert "It would have hidden none of the latest 20 entries." in person.say("filter #1 deny tag:odd title:story"), (
        "what another filter hides is not counted"
    )
    assert "hidden" not in person.say("filter #1")
    assert "hidden" not in person.say("filter #1 off 1")
    assert "hidden" not in person.say("filter #2 deny tag:odd"), "it has no entries"


def test_the_preview_for_several_subscriptions_contains_entries_of_each(person: Person) -> None:
    person.entries = {channel.id: entries(30, f"{number} ") for number, channel in person.follows.items()}
    person.follows[4] = page("https://dd.example/", "dd")
    text = person.say("filter world news deny tag:odd")
    assert "It would have hidden 10 of the latest 20 entries:" in text
    assert "It would have hidden none of the latest 20 entries." in person.say("filter all deny title:other")
    assert person.preferences[FOR_ALL].rules
    person.entries = {person.follows[3].id: entries(1)}
    assert "It would have hidden the latest entry:\n• story 0" in person.say("filter #3 deny story")
