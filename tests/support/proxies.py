"""Private nginx and Caddy servers that terminate TLS in front of a console, with the snippets of ``docs/proxy.md``.

Only addresses, ports, names and certificates are replaced. With a base path, the snippet is changed as the guide says.
"""

import asyncio
import os
import re
import shutil
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import trustme
from aiohttp.test_utils import unused_port

from tests.support.netns import ROOT
from tests.support.waiting import until

Kind = Literal["nginx", "caddy"]

_GUIDE = ROOT / "docs" / "proxy.md"
_NGINX_AROUND = """
daemon off;
{user}
pid {directory}/nginx.pid;
worker_processes 1;
events {{ worker_connections 128; }}
http {{
  access_log off;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
{snippet}
}}
"""
_CADDY_AROUND = """
{{
  admin off
  auto_https disable_redirects
  storage file_system {directory}/storage
}}
{snippet}
"""


class Proxy(NamedTuple):
    """The URL of a running proxy, and an SSL context that trusts its certificate."""

    url: str
    trust: ssl.SSLContext


def snippet(kind: Kind) -> str:
    """Return the snippet of the guide for a proxy at the root of a host name."""
    (found,) = re.findall(rf"```{kind}\n(.*?)```", _GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


def _replaced(text: str, changes: Mapping[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, f"docs/proxy.md no longer has {old!r}"
        text = text.replace(old, new)
    return text


def _nginx(directory: Path, port: int, upstream_port: int, base_path: str) -> str:
    text = _replaced(
        snippet("nginx"),
        {
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "/etc/ssl/console.pem": f"{directory}/server.pem",
            "/etc/ssl/private/console.key": f"{directory}/server.key",
            "127.0.0.1:8080": f"127.0.0.1:{upstream_port}",
            "location / {": f"location {base_path}/ {{",
        },
    )
    return _NGINX_AROUND.format(directory=directory, snippet=text, user="user root;" if os.getuid() == 0 else "")


def _caddy(directory: Path, port: int, upstream_port: int, base_path: str) -> str:
    certificate = f"  tls {directory}/server.pem {directory}/server.key"
    text = _replaced(
        snippet("caddy"),
        {
            "console.example.org {": f"https://127.0.0.1:{port} {{\n  bind 127.0.0.1\n{certificate}",
            "127.0.0.1:8080": f"127.0.0.1:{upstream_port}",
        },
    )
    if base_path:
        head, last = text.split("  reverse_proxy")
        text = f"{head}  handle {base_path}/* {{\n  reverse_proxy{last.rstrip()}\n}}"
    return _CADDY_AROUND.format(directory=directory, snippet=text)


@asynccontextmanager
async def reverse_proxy(
    directory: Path, upstream_port: int, kind: Kind = "nginx", base_path: str = ""
) -> AsyncIterator[Proxy]:
    """Run a proxy with TLS on a free port of loopback, in front of an HTTP server on loopback."""
    package = {"nginx": "nginx-light"}.get(kind, kind)
    program = shutil.which(kind, path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, f"{kind} is missing: run `make test` or `make servers`, which install it, or install {package}."
    directory.mkdir()
    authority, port = trustme.CA(), unused_port()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.private_key_pem.write_to_path(directory / "server.key")
    certificate.cert_chain_pems[0].write_to_path(directory / "server.pem")
    configuration = directory / "configuration"
    write = {"nginx": _nginx, "caddy": _caddy}[kind]
    configuration.write_text(write(directory, port, upstream_port, base_path))
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    arguments: dict[Kind, tuple[str | Path, ...]] = {
        "nginx": ("-p", directory, "-c", configuration, "-e", directory / "log"),
        "caddy": ("run", "--config", configuration, "--adapter", "caddyfile"),
    }
    with (directory / "output").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program, *arguments[kind], stdout=log, stderr=log, env={**os.environ, "HOME": str(directory)}
        )

    async def is_listening() -> bool:
        assert process.returncode is None, (directory / "output").read_text()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    try:
        await until(is_listening, f"{kind} listens")
        yield Proxy(f"https://127.0.0.1:{port}", trust)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
