"""Replies and reactions to notifications, as clients send them."""

import pytest

from bots.bot import Bot
from service.store import Store
from tests.support.bot_in_process import Person, tell
from tests.support.channels import make_channel
from tests.support.chat import ChatClient, Received


async def told(store: Store, person: ChatClient, *urls: str) -> Received:
    """Subscribe a user to these channels, and deliver entries of all channels in one message."""
    channels = [await make_channel(store, url) for url in urls]
    for channel in channels:
        await store.subscriptions.subscribe(person.jid, channel.id)
    for number, channel in enumerate(channels):
        await tell(store, [person], channel, f"news-{number}")
    return await person.wait_for(lambda message: "Entry news-0" in message.body)


async def test_a_reaction_to_a_notification_unsubscribes(bot: Bot, person: Person, store: Store) -> None:
    alice = await person()
    news = await told(store, alice, "https://example.org/feed")
    to, reaction = bot.connection.address, "<reaction>{}</reaction>"
    for emoji in ("👍", "❌"):
        inside = f"<reactions xmlns='urn:xmpp:reactions:0' id='{news.id}'>{reaction.format(emoji)}</reactions>"
        alice.send_raw(f"<message to='{to}' type='chat' id='r'>{inside}</message>")
    await alice.wait_for(lambda message: "Unsubscribed from *A feed* (#1)" in message.body)
    assert not await store.subscriptions.of_user(alice.jid)


@pytest.mark.parametrize("words", ["stop", "unsubscribe"])
async def test_a_reply_to_a_notification_is_about_its_channel(
    bot: Bot, person: Person, store: Store, words: str
) -> None:
    alice = await person()
    news = await told(store, alice, "https://example.org/feed")
    quote = f"&gt; {news.body.splitlines()[0]}\n"
    length = len(quote) - len("&gt;") + 1
    alice.send_raw(
        f"<message to='{bot.connection.address}' type='chat' id='r'><body>{quote}{words}</body>"
        f"<reply xmlns='urn:xmpp:reply:0' to='{bot.connection.address}' id='{news.id}'/>"
        f"<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'><body start='0' end='{length}'/></fallback>"
        "</message>"
    )
    await alice.wait_for(lambda message: "Unsubscribed from *A feed* (#1)" in message.body)
    assert not await store.subscriptions.of_user(alice.jid)
