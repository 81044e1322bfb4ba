"""The public profile of the bot, as other clients see it."""

import base64
import hashlib

import pytest

from bots.bot import Bot
from bots.xmpp import bot_profile
from tests.support.bot_in_process import Person
from tests.support.client_software import software, where
from tests.support.waiting import until


async def test_the_profile_is_returned_to_other_clients(bot: Bot, person: Person) -> None:
    stream = software(await person())
    address = where(bot)
    info = (await stream.plugin["xep_0030"].get_info(address, timeout=10))["disco_info"]
    assert ("client", "bot", None, "Coronet") in info["identities"]
    assert {"http://jabber.org/protocol/commands", "urn:xmpp:receipts", "urn:xmpp:reply:0"} <= set(info["features"])
    card = (await stream.plugin["xep_0054"].get_vcard(address, timeout=10))["vcard_temp"]
    assert card["FN"] == "Coronet"
    picture = base64.b64decode(card.xml.findtext("{vcard-temp}PHOTO/{vcard-temp}BINVAL"))
    assert hashlib.sha1(picture, usedforsecurity=False).hexdigest() == bot_profile.AVATAR_ID
    version = (await stream.plugin["xep_0092"].get_version(address, timeout=10))["software_version"]
    assert version["name"] == "Coronet"


@pytest.mark.parametrize("login", ["client"])
async def test_the_profile_of_an_account_is_published_on_its_server(bot: Bot, person: Person) -> None:
    stream = software(await person())

    async def published() -> bool:
        card = await stream.plugin["xep_0054"].get_vcard(bot.connection.address, timeout=10, cached=False)
        return str(card["vcard_temp"]["FN"]) == "Coronet"

    await until(published, "the vCard, published after the avatar, is available")
    items = await stream.plugin["xep_0060"].get_items(
        bot.connection.address, bot_profile.NS_AVATAR_METADATA, timeout=10
    )
    assert [item["id"] for item in items["pubsub"]["items"]] == [bot_profile.AVATAR_ID]
