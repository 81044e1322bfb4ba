"""Requests of a user's client to the bot: service discovery, vCards, ad-hoc commands."""

from typing import Any

from bots.bot import Bot
from tests.support.chat import ChatClient

PLUGINS = ("xep_0004", "xep_0030", "xep_0050", "xep_0054", "xep_0060", "xep_0084", "xep_0092", "xep_0115", "xep_0292")


def software(client: ChatClient) -> Any:
    """Return the client's slixmpp stream with the plugins for service discovery, vCards and ad-hoc commands."""
    for plugin in PLUGINS:
        client._xmpp.register_plugin(plugin)
    return client._xmpp


def where(bot: Bot) -> str:
    """Return the JID of the bot's session, to which requests are sent whether it is an account or a component."""
    return bot.connection.session_jid


class Errand:
    """One session of an ad-hoc command (XEP-0050)."""

    def __init__(self, client: ChatClient, to: str, node: str) -> None:
        self._plugin = software(client).plugin["xep_0050"]
        self._forms: Any = client._xmpp.plugin["xep_0004"]
        self._to, self._node = to, node
        self.session = ""

    async def step(self, action: str = "execute", **values: str | list[str]) -> Any:
        """Submit values, if any, and return the command element of the response; raises IqError if refused."""
        form = None
        if values:
            form = self._forms.make_form(ftype="submit")
            for var, value in values.items():
                form.add_field(var=var, ftype="text-multi" if isinstance(value, list) else "text-single", value=value)
        answer = await self._plugin.send_command(
            self._to, self._node, action=action, payload=form, sessionid=self.session or None, timeout=10
        )
        self.session = answer["command"]["sessionid"]
        return answer["command"]

    @staticmethod
    def note(command: Any) -> tuple[str, str]:
        """Return the type and text of the first note of a command element; ("", "") if it has no note."""
        return next(iter(command["notes"]), ("", ""))
