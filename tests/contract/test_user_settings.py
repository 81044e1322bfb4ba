"""User settings are stored separately from the language that the user's client declares."""

from service.store import Store
from service.store.client.keys import user_id
from service.users.quiet_hours_and_digests import DigestSchedule
from service.users.user_settings import DEFAULT_USER_SETTINGS, UserSettings

ALICE, BEN = "alice@localhost", "ben@localhost"
DAILY = UserSettings("Europe/Berlin", None, DigestSchedule("day"), language="de")


async def test_an_unknown_user_has_the_default_state(store: Store) -> None:
    assert await store.users.user_settings([user_id(ALICE)]) == [DEFAULT_USER_SETTINGS]
    assert (await store.users.get(ALICE)).user_settings == DEFAULT_USER_SETTINGS


async def test_settings_are_stored_per_user(store: Store) -> None:
    await store.users.set_user_settings(ALICE, DAILY)
    assert await store.users.user_settings([user_id(BEN), user_id(ALICE)]) == [DEFAULT_USER_SETTINGS, DAILY]
    assert (await store.users.get(ALICE)).user_settings == DAILY


async def test_client_language_and_user_settings_do_not_overwrite_each_other(store: Store) -> None:
    await store.users.set_client_language(ALICE, "fr")
    (user_settings,) = await store.users.user_settings([user_id(ALICE)])
    assert (user_settings.language, user_settings.effective_language) == ("", "fr")
    await store.users.set_user_settings(ALICE, DAILY)
    await store.users.set_client_language(ALICE, "es")
    (user_settings,) = await store.users.user_settings([user_id(ALICE)])
    assert (user_settings.language, user_settings.client_language, user_settings.effective_language) == (
        "de",
        "es",
        "de",
    )
    await store.users.set_user_settings(ALICE, UserSettings(client_language="pt"))
    assert (await store.users.get(ALICE)).user_settings.effective_language == "es"
