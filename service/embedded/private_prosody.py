"""A private XMPP server: Prosody 0.12 on loopback with a self-signed certificate.

It serves the domain ``localhost`` for users, a component for each bot, and components for rooms, files and pubsub.

Prosody's module ``limits`` is not loaded. It would limit a bot that serves hundreds of users to 10 kB/s. If two
connections log in as the same component, Prosody keeps the newer one, because the older one may belong to a bot that
has crashed.
"""

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from service.embedded import ports
from service.embedded.child_process import EmbeddedServer, Program
from service.errors import OperationalError
from service.private_files import ensure_secret_file, write_private

_CONFIG: Final = """\
pidfile = "{directory}/prosody.pid"
data_path = "{directory}/data"
certificates = "{directory}/certs"
admin_socket = "{directory}/prosody.sock"
log = {{ info = "*stdout" }}
run_as_root = {as_root}
interfaces = {{ "127.0.0.1" }}
c2s_ports = {{ {c2s_port} }}
c2s_direct_tls_ports = {{ }}
component_interfaces = {{ "127.0.0.1" }}
component_ports = {{ {component_port} }}
http_interfaces = {{ "127.0.0.1" }}
http_ports = {{ {http_port} }}
https_ports = {{ }}
http_default_host = "{domain}"
consider_websocket_secure = true
authentication = "internal_hashed"
storage = "internal"
allow_registration = false
c2s_require_encryption = true
modules_enabled = {{
  "roster", "saslauth", "tls", "disco", "ping", "version", "posix", "private", "blocklist", "vcard4",
  "vcard_legacy", "pep", "carbons", "smacks", "csi_simple", "mam", "offline", "bookmarks", "admin_shell",
  "websocket",
}}
modules_disabled = {{ "s2s" }}

VirtualHost "{domain}"
  ssl = {{ key = "{directory}/certs/localhost.key", certificate = "{directory}/certs/localhost.crt" }}

{components}
Component "rooms.{domain}" "muc"
  modules_enabled = {{ "muc_mam" }}

Component "pubsub.{domain}" "pubsub"
  admins = {{ {admins} }}

Component "files.{domain}" "http_file_share"
  http_host = "{domain}"
  http_external_url = "{http_url}"
"""


_COMPONENT: Final = """\
Component "{component}"
  component_secret = "{secret}"
  component_conflict_resolve = "kick_old"
"""


class PrivateProsody(EmbeddedServer):
    """A Prosody server that keeps its data, ports, secret and certificate in a directory."""

    jid_domain: Final = "localhost"
    pubsub_jid: Final = "pubsub.localhost"
    """The pubsub service on which bots may create nodes."""
    component_jid: Final = "feeds.localhost"
    bot_jid: Final = f"coronet@{component_jid}"
    """The bot's address. It has a local part, because some clients treat a bare domain as a server and do not show its
    messages."""

    def __init__(self, directory: Path, c2s_port: int = 0, component_port: int = 0, *, shards: int = 0) -> None:
        """Create the object and choose the server's ports, without starting the server.

        - ``c2s_port``: the port for clients.
        - ``component_port``: the port for components.
        - ``shards``: the number of additional components, each for one further address of the bot.

        A port of 0 means any free port. It is saved in ``directory``, and reused at the next start if it is still free.
        Raises :class:`OperationalError` if a requested port is in use.
        """
        super().__init__(directory)
        chosen = ports.choose_ports(directory / "ports.json", {"c2s": c2s_port, "component": component_port, "http": 0})
        self.c2s_port = chosen["c2s"]
        self.component_port = chosen["component"]
        self.http_url = f"http://{ports.LOOPBACK}:{chosen['http']}/"
        """URL prefix of uploaded files (XEP-0363)."""
        self.websocket_url = f"ws://{ports.LOOPBACK}:{chosen['http']}/xmpp-websocket"
        """WebSocket URL for browsers on this machine (RFC 7395)."""
        self.ca_file = directory / "certs" / "localhost.crt"
        """The self-signed certificate, which clients must trust."""
        self.component_secret_file = ensure_secret_file(directory, "component-secret")
        self.component_secret = self.component_secret_file.read_text(encoding="ascii")
        self.shards = tuple(f"coronet@b{number}.{self.component_jid}" for number in range(2, shards + 2))
        """The bot addresses at the additional components, which share the password."""
        self._http_port = chosen["http"]
        self._config = directory / "prosody.cfg.lua"

    async def program(self) -> Program:
        """Create the certificate and the configuration, and return the program that runs Prosody with them."""
        if not self.ca_file.exists():
            await self._make_certificate()
        write_private(self._config, self._configuration())
        (self.directory / "data").mkdir(mode=0o700, exist_ok=True)
        argv = (_binary("prosody"), "--config", str(self._config), "-F")
        return Program("prosody", argv, self.directory / "prosody.log", self.is_ready)

    async def is_ready(self) -> bool:
        """Return whether clients and components can connect."""
        return await ports.is_listening(self.c2s_port) and await ports.is_listening(self.component_port)

    async def register(self, username: str, password: str) -> str:
        """Create an account, or change the password of an existing one; return the account's JID.

        Prosody need not be running. The password is passed to ``prosodyctl`` on standard input, so that the list of
        processes does not show it.
        """
        jid = f"{username}@{self.jid_domain}"
        as_root = ["--root"] if os.geteuid() == 0 else []
        for verb in ("adduser", "passwd"):
            argv = [_binary("prosodyctl"), "--config", str(self._config), *as_root, verb, jid]
            status, output = await _run(argv, f"{password}\n{password}\n")
            if status == 0:
                return jid
        raise OperationalError(f"Prosody did not create the account {jid}: {output}")

    def _configuration(self) -> str:
        domains = (self.component_jid, *(jid.rpartition("@")[2] for jid in self.shards))
        return _CONFIG.format(
            directory=self.directory,
            as_root=str(os.geteuid() == 0).lower(),
            c2s_port=self.c2s_port,
            component_port=self.component_port,
            http_port=self._http_port,
            http_url=self.http_url,
            domain=self.jid_domain,
            components="\n".join(_COMPONENT.format(component=each, secret=self.component_secret) for each in domains),
            admins=", ".join(f'"{each}"' for each in (*domains, self.bot_jid, *self.shards)),
        )

    async def _make_certificate(self) -> None:
        """Create a key, and a certificate that is valid for ten years.

        The certificate is written last, so if it exists, both files are complete.
        """
        key = self.ca_file.with_suffix(".key")
        new_key, new_certificate = key.with_suffix(".key.new"), key.with_suffix(".crt.new")
        key.parent.mkdir(mode=0o700, exist_ok=True)
        names = f"subjectAltName=DNS:{self.jid_domain},DNS:rooms.{self.jid_domain}"
        argv = [_binary("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        argv += ["-nodes", "-days", "3650", "-subj", f"/CN={self.jid_domain}", "-addext", names]
        status, output = await _run([*argv, "-keyout", str(new_key), "-out", str(new_certificate)])
        if status != 0:
            raise OperationalError(f"openssl created no certificate: {output}")
        new_key.chmod(0o600)
        new_key.replace(key)
        new_certificate.replace(self.ca_file)


def _binary(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise OperationalError(
            f"{name} was not found: install it (Debian: apt-get install {name.removesuffix('ctl')})."
        )
    return found


async def _run(argv: Sequence[str], stdin: str = "") -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate(stdin.encode())
    return process.returncode, output.decode(errors="replace").strip()[-500:]
