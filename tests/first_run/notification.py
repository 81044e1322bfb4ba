"""A person's first notification: ``python -m tests.first_run.notification JID PASSWORD PORT BOT FEED PUBLISH``.

The person logs in at the XMPP server on loopback, subscribes to a feed, and waits for its next entry. PUBLISH is the
URL at which an entry can be published.
"""

import asyncio
import sys
from typing import NamedTuple

import aiohttp

from tests.support.chat import online

_WITHIN_S = 90.0
_TITLE = "Published after the subscription"


class Account(NamedTuple):
    """The login of a person at the XMPP server on ``port`` of loopback, and the bot's address."""

    jid: str
    password: str
    port: int
    bot: str


async def wait_for_notification(account: Account, feed: str, publish: str = "") -> None:
    """Subscribe and wait; without ``publish``, the feed has new entries by itself.

    Raises RuntimeError if the bot does not subscribe, TimeoutError if no entry arrives.
    """
    async with online(account.jid, account.password, "127.0.0.1", account.port, account.bot) as client:
        answer = await client.say(f"subscribe {feed}", 60.0)
        if "Subscribed" not in answer:
            raise RuntimeError(f"The bot answered {answer!r}.")
        if publish:
            async with aiohttp.ClientSession() as http, http.post(publish, params={"title": _TITLE}) as response:
                response.raise_for_status()
        title = _TITLE if publish else "Entry "
        await client.wait_for(lambda message: title in message.body and not message.thread, _WITHIN_S)


if __name__ == "__main__":
    jid, password, port, bot, *urls = sys.argv[1:]
    asyncio.run(wait_for_notification(Account(jid, password, int(port), bot), *urls))
