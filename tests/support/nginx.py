"""A private nginx that terminates TLS in front of a console."""

import asyncio
import os
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import trustme
from aiohttp.test_utils import unused_port

from tests.support.waiting import until

_CONFIGURATION = """
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
  map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {directory}/server.pem;
    ssl_certificate_key {directory}/server.pem;
    location / {{
      proxy_pass http://127.0.0.1:{upstream_port};
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
    }}
  }}
}}
"""


class Proxy(NamedTuple):
    """The URL of a running nginx, and an SSL context that trusts its certificate."""

    url: str
    trust: ssl.SSLContext


@asynccontextmanager
async def nginx(directory: Path, upstream_port: int) -> AsyncIterator[Proxy]:
    """Run nginx with TLS on a free port of loopback, in front of an HTTP server on loopback."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "nginx is missing: run `make test`, which installs it, or install nginx-light."
    directory.mkdir()
    authority, port = trustme.CA(), unused_port()
    authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        directory / "server.pem"
    )
    (directory / "nginx.conf").write_text(
        _CONFIGURATION.format(
            directory=directory, port=port, upstream_port=upstream_port, user="user root;" if os.getuid() == 0 else ""
        )
    )
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    arguments = ("-p", directory, "-c", directory / "nginx.conf", "-e", directory / "error.log")
    process = await asyncio.create_subprocess_exec(program, *arguments)

    async def is_listening() -> bool:
        assert process.returncode is None, (directory / "error.log").read_text()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    try:
        await until(is_listening, "nginx listens")
        yield Proxy(f"https://127.0.0.1:{port}", trust)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
