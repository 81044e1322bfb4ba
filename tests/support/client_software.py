"""What a person's software asks of a bot behind their back: discovery, vCards, ad-hoc commands."""

from typing import Any

from bots.bot import Bot
from tests.support.chat import ChatClient

PLUGINS = ("xep_0004", "xep_0030", "xep_0050", "xep_0054", "xep_0060", "xep_0084", "xep_0092", "xep_0115", "xep_0292")


def software(client: ChatClient) -> Any:
    """The client's own stream, with what it needs for this."""
    for plugin in PLUGINS:
        client._xmpp.register_plugin(plugin)
    return client._xmpp


def where(bot: Bot) -> str:
    """Where a bot's own software is reached: behind an account, only under its full address."""
    return bot.connection.session_jid


class Errand:
    """One run of an ad-hoc command, as software carries it out."""

    def __init__(self, client: ChatClient, to: str, node: str) -> None:
        self._plugin = software(client).plugin["xep_0050"]
        self._forms: Any = client._xmpp.plugin["xep_0004"]
        self._to, self._node = to, node
        self.session = ""

    async def step(self, action: str = "execute", **values: str | list[str]) -> Any:
        """Fill in the form, if there was one, and return the command element that comes back; IqError if refused."""
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
        """The kind and the words of the first note."""
        return next(iter(command["notes"]), ("", ""))
