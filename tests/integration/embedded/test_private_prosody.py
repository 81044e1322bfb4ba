"""The private Prosody as a real process."""

import asyncio
import ssl
import stat
from pathlib import Path

from service.embedded import ports
from service.embedded.private_prosody import PrivateProsody


async def stream_features(server: PrivateProsody) -> bytes:
    """Return the stream features that Prosody sends to a client."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.c2s_port)
    try:
        opening = f"<stream:stream to='{server.jid_domain}' xmlns='jabber:client'"
        writer.write(f"{opening} xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>".encode())
        return await reader.readuntil(b"</stream:features>")
    finally:
        writer.close()
        await writer.wait_closed()


async def test_clients_must_use_tls_before_authentication(prosody: PrivateProsody) -> None:
    features = await stream_features(prosody)
    assert b"urn:ietf:params:xml:ns:xmpp-tls" in features
    assert b"PLAIN" not in features


async def test_the_certificate_can_be_used_as_a_ca(prosody: PrivateProsody) -> None:
    subjects = ssl.create_default_context(cafile=str(prosody.ca_file)).get_ca_certs()
    assert (("commonName", "localhost"),) in [name for found in subjects for name in found["subject"]]


async def test_ports_secret_certificate_and_accounts_persist_across_starts(tmp_path: Path) -> None:
    async with PrivateProsody(tmp_path / "p") as first:
        assert await first.register("alice", "first password") == "alice@localhost"
        kept = (first.c2s_port, first.component_port, first.component_secret, first.ca_file.read_bytes())
    account = tmp_path / "p/data/localhost/accounts/alice.dat"
    before = account.read_bytes()
    async with PrivateProsody(tmp_path / "p") as second:
        assert (second.c2s_port, second.component_port, second.component_secret, second.ca_file.read_bytes()) == kept
        assert account.read_bytes() == before
        await second.register("alice", "second password")
    assert account.read_bytes() != before


async def test_secrets_are_readable_by_their_owner_only(prosody: PrivateProsody) -> None:
    secret_files = [prosody.component_secret_file, prosody.ca_file.with_suffix(".key")]
    assert [stat.S_IMODE(path.stat().st_mode) for path in secret_files] == [0o600, 0o600]


async def test_a_stopped_server_does_not_listen(tmp_path: Path) -> None:
    async with PrivateProsody(tmp_path / "p") as server:
        assert await ports.is_listening(server.c2s_port)
    assert not await ports.is_listening(server.c2s_port)
