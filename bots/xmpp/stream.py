"""The slixmpp stream, made as the settings say."""

from pathlib import Path
from typing import Final

from slixmpp import ClientXMPP, ComponentXMPP

from service.settings import Settings

RESOURCE: Final = "coronet"
"""The same in every process: a successor replaces what its predecessor left behind."""


def endpoint(settings: Settings) -> tuple[str | None, int | None]:
    """Return where to connect; None for what DNS says (clients only)."""
    if settings.xmpp_login == "component":
        return settings.xmpp_host or "127.0.0.1", settings.xmpp_port or 5347
    return (settings.xmpp_host, settings.xmpp_port or 5222) if settings.xmpp_host else (None, None)


def made(settings: Settings) -> ClientXMPP | ComponentXMPP:
    """Return a stream that knows how to log in, not connected yet."""
    password = settings.xmpp_password.get_secret_value()
    stream: ClientXMPP | ComponentXMPP
    if settings.xmpp_login == "component":
        stream = ComponentXMPP(settings.xmpp_jid.rpartition("@")[2], password)  # type: ignore[no-untyped-call] # slixmpp left it untyped
    else:
        stream = ClientXMPP(f"{settings.xmpp_jid}/{RESOURCE}", password)
        stream.enable_direct_tls = not settings.xmpp_host  # a host of our own choice speaks STARTTLS
        stream.register_plugin("xep_0198")
        if settings.xmpp_ca_file:
            stream.ca_certs = Path(settings.xmpp_ca_file)
    return stream
