"""``coronet admin`` carried out: a command line becomes a request, the answer text."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from service import shards
from service.console.api import OPERATIONS, PREFIX
from service.console.commands import Call, understood
from service.console.remote import ask
from service.console.told import told
from service.errors import UserError
from service.settings import Settings, load
from service.shards import Shards

_MEDIA_TYPE: Final = "application/json"


async def run(arguments: Sequence[str], environ: Mapping[str, str] | None) -> str:
    """Return what to print. Raises :class:`service.errors.WrongUse`, and what the console answers."""
    call = understood(OPERATIONS, arguments)
    if isinstance(call, str):
        return call
    settings = load(environ)
    token = settings.console_admin_token.get_secret_value()
    if not token:
        raise UserError("Set CORONET_CONSOLE_ADMIN_TOKEN to the console's token, or to an API key of yours.")
    media_type, said = await ask(
        _url(settings),
        token,
        call.operation.method,
        PREFIX + call.path,
        query=call.query,
        body=call.body,
        media_type=call.media_type,
    )
    return _shown(call, media_type, said)


def _url(settings: Settings) -> str:
    if settings.console_public_url:
        return settings.console_public_url
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.console_bind, settings.console_bind)  # noqa: S104 - compared
    return f"http://[{host}]:{settings.console_port}" if ":" in host else f"http://{host}:{settings.console_port}"


def _shown(call: Call, media_type: str, said: bytes) -> str:
    if not said:
        return "{}" if call.as_json else "Done."
    text = said.decode()
    if call.as_json or media_type != _MEDIA_TYPE:
        return text
    if Shards in call.operation.answers.values():
        return shards.as_text(msgspec.json.decode(said, type=Shards))
    return told(msgspec.json.decode(said))
