"""The language of replies, notifications and forms: chosen by the user, or declared by the user's client."""

from bots.bot import Bot
from service.store import Store
from service.store.client.keys import user_id
from tests.support.bot_in_process import Person, tell
from tests.support.channels import make_channel
from tests.support.chat import ChatClient
from tests.support.client_software import Errand, where

SEVEN = [str(number) for number in range(7)]


async def told(store: Store, client: ChatClient) -> str:
    """Deliver seven entries to a new subscriber; return the last line, which counts the entries that are not shown."""
    channel = await make_channel(store)
    await store.subscriptions.subscribe(client.jid, channel.id)
    await tell(store, [client], channel, *SEVEN)
    message = await client.wait_for(lambda heard: heard.body.startswith("*A feed*"))
    return message.body.splitlines()[-1]


async def test_replies_and_notifications_are_in_the_chosen_language(bot: Bot, person: Person, store: Store) -> None:
    alice = await person()
    assert (await alice.say("language deutsch")).splitlines()[-1].startswith("Ab jetzt schreibe ich Ihnen auf Deutsch.")
    assert await alice.say("list") == (
        "Sie haben keine Abonnements. Senden Sie mir die Adresse einer Website oder eines Feeds, um anzufangen."
    )
    assert (await told(store, alice)).startswith("und 2 weitere: ")
    assert "in English" not in await alice.say("language")
    assert bot.connection.connected.is_set()


async def test_without_a_choice_the_clients_language_is_used(bot: Bot, person: Person, store: Store) -> None:
    alice = await person()
    alice.send_raw(
        f"<message to='{bot.connection.address}' type='chat' xml:lang='fr-CA'>"
        "<body>list</body><thread>first</thread></message>"
    )
    welcome = await alice.wait_for(lambda heard: heard.thread == "first")
    assert welcome.body.startswith("Bonjour")
    assert (await told(store, alice)).startswith("et 2 autres\u00a0: ")
    user_settings = (await store.users.user_settings([user_id(alice.jid)]))[0]
    assert (user_settings.language, user_settings.client_language) == ("", "fr")
    assert (await alice.say("digest daily")).startswith("Saved."), "this client has said that it speaks English"


async def test_a_chosen_language_overrides_the_clients_language(bot: Bot, person: Person) -> None:
    alice = await person()
    await alice.say("language es")
    alice.send_raw(
        f"<message to='{bot.connection.address}' type='chat' xml:lang='de'>"
        "<body>quiet off</body><thread>q</thread></message>"
    )
    assert (await alice.wait_for(lambda heard: heard.thread == "q")).body.startswith("Guardado.")
    assert (await alice.say("language auto")).startswith("From now on I'll write in your client's language")


async def test_forms_are_in_the_chosen_language(bot: Bot, person: Person) -> None:
    alice = await person()
    at = where(bot)
    assert "You have no subscriptions" in Errand.note(await Errand(alice, at, "list").step())[1]
    await alice.say("language de")
    assert "Sie haben keine Abonnements" in Errand.note(await Errand(alice, at, "list").step())[1]
