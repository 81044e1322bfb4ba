"""The slixmpp stream, made as the settings say."""

import asyncio
from pathlib import Path
from typing import Final

from slixmpp import ClientXMPP, ComponentXMPP

from service.settings import Settings

_BOUND_WITHIN_S: Final = 10.0


def resource(session: str) -> str:
    """Return the resource of a bot's sessions. Whoever takes it replaces what was left behind there."""
    return f"coronet-{session}"


def endpoint(settings: Settings) -> tuple[str | None, int | None]:
    """Return where to connect; None for what DNS says (clients only)."""
    if settings.xmpp_login == "component":
        return settings.xmpp_host or "127.0.0.1", settings.xmpp_port or 5347
    return (settings.xmpp_host, settings.xmpp_port or 5222) if settings.xmpp_host else (None, None)


def made(settings: Settings, session: str) -> ClientXMPP | ComponentXMPP:
    """Return a stream that knows how to log in, not connected yet; an account's is known by ``session``."""
    password = settings.xmpp_password.get_secret_value()
    stream: ClientXMPP | ComponentXMPP
    if settings.xmpp_login == "component":
        stream = ComponentXMPP(settings.xmpp_jid.rpartition("@")[2], password)  # type: ignore[no-untyped-call] # slixmpp left it untyped
    else:
        stream = ClientXMPP(f"{settings.xmpp_jid}/{resource(session)}", password)
        stream.enable_direct_tls = not settings.xmpp_host  # a host of our own choice speaks STARTTLS
        stream.register_plugin("xep_0198")
        if settings.xmpp_ca_file:
            stream.ca_certs = Path(settings.xmpp_ca_file)
    return stream


async def lay_to_rest(settings: Settings, session: str) -> None:
    """End a session of our account that died: take its place, and go. Raises TimeoutError."""
    stream = made(settings, session)
    stream.connect(*endpoint(settings))
    try:
        await stream.wait_until("session_start", _BOUND_WITHIN_S)
    finally:
        stream.cancel_connection_attempt()
        await ended(stream)


async def ended(stream: ClientXMPP | ComponentXMPP) -> None:
    """End a stream in order, and what slixmpp would end only once the stream is garbage."""
    await stream.disconnect(wait=2.0, ignore_send_queue=True)
    sender = stream._run_out_filters  # noqa: SLF001 - see above
    if sender is not None:
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)
