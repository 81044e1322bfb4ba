"""Announcements as people get them on a real Prosody."""

import pytest

from service.settings import Settings
from service.store import Store
from service.store.client.keys import user_id
from service.store.delivery.announcements import Announcement
from service.users.preferences import FOR_ALL, Preferences
from tests.support.bot_in_process import Person, serving
from tests.support.chat import ChatClient
from tests.support.waiting import until


@pytest.fixture
def login() -> str:
    """Log in as a component; the kind of login does not matter here."""
    return "component"


async def announce(store: Store, people: list[ChatClient], text: str, **translations: str) -> int:
    """Start an announcement to these people, and queue it for all of them."""
    number = await store.announcements.reserve_number()
    announcement = Announcement(number, text, "all", "ada", 0.0, 1, len(people), translations)
    assert await store.announcements.start(announcement, [user_id(person.jid) for person in people])
    await store.announcements.dispatch(1_000.0, 60.0)
    return number


async def test_people_get_an_announcement_in_their_language_once_until_they_turn_it_off(
    settings: Settings, store: Store, person: Person
) -> None:
    alice, bert = await person(), await person()
    async with serving(settings, store) as bot:
        await bert.say("language de")
        await alice.say("status")
        await store.preferences.put(bert.jid, FOR_ALL, Preferences(muted=True, interval_s=3_600))
        bot.delivery.on_settings_changed(bert.jid)
        number = await announce(store, [alice, bert], "We move on Friday.", de="Wir ziehen am Freitag um.")
        english = await alice.wait_for(lambda message: "We move on Friday." in message.body)
        german = await bert.wait_for(lambda message: "Wir ziehen am Freitag um." in message.body)
        assert "`announcements off`" in english.body
        assert "Mitteilung der Betreiber" in german.body
        assert "You won't get any more announcements" in await alice.say("announcements off")
        await announce(store, [alice, bert], "We are back.")
        await bert.wait_for(lambda message: "We are back." in message.body)
        assert "You're not getting announcements" in await alice.say("announcements")
        assert number == 1
    for person_, count in ((alice, 1), (bert, 2)):
        assert sum("📢" in message.body for message in person_.received) == count


async def test_a_stopped_announcement_is_not_sent_from_the_outbox(
    settings: Settings, store: Store, person: Person
) -> None:
    alice, bert = await person(), await person()
    for each in (alice, bert):
        await store.users.mark_welcomed(each.jid)
    number = await store.announcements.reserve_number()
    announcement = Announcement(number, "A mistake.", "all", "ada", 0.0, 1.0)
    assert await store.announcements.start(announcement, [user_id(alice.jid), user_id(bert.jid)])
    await store.announcements.dispatch(30.0, 15.0)
    assert len(await store.outbox.waiting_users()) == 1
    assert await store.announcements.stop(number, 31.0)
    async with serving(settings, store):

        async def is_empty() -> bool:
            return not await store.outbox.waiting_users()

        await until(is_empty, "the outbox is empty")
        await alice.say("status")
        await bert.say("status")
    assert not any("A mistake." in message.body for message in (*alice.received, *bert.received))
