"""A private ejabberd (Debian's 23.01) on loopback, with a generated certificate.

Erlang's runtime starts ejabberd directly, without a node name, so that several instances can run at once and as any
user: `ejabberdctl` runs only as root or as the user ejabberd, and needs Erlang's port mapper, a daemon that would
outlive the test.
"""

import asyncio
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Final

import aiohttp

from service.embedded import ports
from service.embedded.child_process import EmbeddedServer, Program
from service.errors import OperationalError
from service.private_files import write_private

_LIBRARIES: Final = Path("/usr/lib")
"""Parent of the folder, named by the machine's architecture, in which Debian installs Erlang's applications."""

_CONFIG: Final = """\
hosts: [localhost]
loglevel: info
certfiles: ["{directory}/server.pem"]
s2s_access: none
auth_method: [internal]
auth_password_format: scram
access_rules: {{everybody: [{{allow: all}}]}}
api_permissions: {{tests: {{who: {{ip: "127.0.0.1/32"}}, what: [register]}}}}
listen:
  - {{port: {c2s}, ip: "127.0.0.1", module: ejabberd_c2s, starttls_required: true, max_stanza_size: 262144,
      shaper: none, access: everybody}}
  - {{port: {component}, ip: "127.0.0.1", module: ejabberd_service, shaper: none, access: everybody,
      hosts: {{"{domain}": {{password: "{secret}"}}}}}}
  - {{port: {http}, ip: "127.0.0.1", module: ejabberd_http, request_handlers: {{"/api": mod_http_api}}}}
modules: {{mod_roster: {{}}, mod_disco: {{}}, mod_ping: {{}}, mod_offline: {{}}, mod_stream_mgmt: {{}},
  mod_mam: {{default: always}}, mod_carboncopy: {{}}, mod_blocking: {{}}, mod_private: {{}}, mod_privacy: {{}},
  mod_pubsub: {{plugins: [flat, pep]}}, mod_caps: {{}}, mod_muc: {{host: rooms.localhost}},
  mod_vcard: {{search: false}}, mod_http_api: {{}}}}
"""


class PrivateEjabberd(EmbeddedServer):
    """One ejabberd with its state in one directory, for users and for one bot as account or component."""

    start_timeout_s = 60.0
    component_jid: Final = "feeds.localhost"
    bot_jid: Final = f"coronet@{component_jid}"

    def __init__(self, directory: Path) -> None:
        """Choose free ports; nothing runs before :meth:`start`."""
        super().__init__(directory)
        chosen = ports.choose_ports(directory / "ports.json", {"c2s": 0, "component": 0, "http": 0})
        self.c2s_port = chosen["c2s"]
        self.component_port = chosen["component"]
        self._http_port = chosen["http"]
        self.component_secret = secrets.token_urlsafe(24)
        self.ca_file = directory / "certificate.pem"

    async def program(self) -> Program:
        """Write the certificate and the configuration; return the program to run."""
        libraries = _libraries()
        await self._make_certificate()
        write_private(self.directory / "ejabberd.yml", self._configuration())
        environ = {
            "ERL_LIBS": str(libraries),
            "ERL_CRASH_DUMP_BYTES": "0",
            "HOME": str(self.directory),
            "EJABBERD_CONFIG_PATH": str(self.directory / "ejabberd.yml"),
            "EJABBERD_LOG_PATH": str(self.directory / "ejabberd.log"),
        }
        argv = ("erl", "-noinput", "-mnesia", "dir", f'"{self.directory}/spool"', "-s", "ejabberd")
        return Program("ejabberd", argv, self.directory / "output.log", self._answers, {**os.environ, **environ})

    async def register(self, username: str, password: str) -> str:
        """Create an account; return its JID."""
        account = {"user": username, "host": "localhost", "password": password}
        url = f"http://127.0.0.1:{self._http_port}/api/register"
        async with aiohttp.ClientSession() as session, session.post(url, data=json.dumps(account)) as answer:
            if answer.status != 200:
                raise OperationalError(f"ejabberd did not take the account {username}: {await answer.text()}")
        return f"{username}@localhost"

    async def _answers(self) -> bool:
        listening = (self.c2s_port, self.component_port, self._http_port)
        return all([await ports.is_listening(port) for port in listening])

    def _configuration(self) -> str:
        return _CONFIG.format(
            directory=self.directory,
            c2s=self.c2s_port,
            component=self.component_port,
            http=self._http_port,
            domain=self.component_jid,
            secret=self.component_secret,
        )

    async def _make_certificate(self) -> None:
        key = self.directory / "key.pem"
        argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        argv += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        process = await asyncio.create_subprocess_exec(
            *(*argv, "-keyout", str(key), "-out", str(self.ca_file)), stderr=asyncio.subprocess.DEVNULL
        )
        if await process.wait():
            raise OperationalError("openssl made no certificate for ejabberd.")
        write_private(self.directory / "server.pem", key.read_text() + self.ca_file.read_text())


def _libraries() -> Path:
    """Return the folder of Erlang's applications. Raises OperationalError if ejabberd is not among them."""
    found = next(_LIBRARIES.glob("*/ejabberd-*/ebin/ejabberd.app"), None)
    if found is None or shutil.which("erl") is None:
        raise OperationalError("There is no ejabberd here: install it (Debian: apt-get install ejabberd).")
    return found.parents[2]
