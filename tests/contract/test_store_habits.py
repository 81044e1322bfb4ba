"""When people want to hear from us, and in which language, is kept apart from what their clients say."""

from service.store import Store
from service.store.client.keys import user_id
from service.users.quiet_hours import NONE, Digest, Habits

ALICE, BEN = "alice@localhost", "ben@localhost"
DAILY = Habits("Europe/Berlin", None, Digest("day"), language="de")


async def test_of_a_stranger_nothing_is_known(store: Store) -> None:
    assert await store.users.habits([user_id(ALICE)]) == [NONE]
    assert (await store.users.get(ALICE)).habits == NONE


async def test_habits_are_kept_per_person(store: Store) -> None:
    await store.users.set_habits(ALICE, DAILY)
    assert await store.users.habits([user_id(BEN), user_id(ALICE)]) == [NONE, DAILY]
    assert (await store.users.get(ALICE)).habits == DAILY


async def test_what_a_client_says_undoes_no_choice_and_no_choice_undoes_it(store: Store) -> None:
    await store.users.set_client_language(ALICE, "fr")
    (habits,) = await store.users.habits([user_id(ALICE)])
    assert (habits.language, habits.speaks) == ("", "fr")
    await store.users.set_habits(ALICE, DAILY)
    await store.users.set_client_language(ALICE, "es")
    (habits,) = await store.users.habits([user_id(ALICE)])
    assert (habits.language, habits.client_language, habits.speaks) == ("de", "es", "de")
    await store.users.set_habits(ALICE, Habits(client_language="pt"))
    assert (await store.users.get(ALICE)).habits.speaks == "es"
