"""A network namespace with a publisher at a public address, and each module's stack with its reader.

A module names its compose files beside ``compose.yaml`` in ``FILES``.
"""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.containers import stack as stacks
from tests.containers.build import missing_images
from tests.containers.stack import Reader, Stack
from tests.support.netns import started
from tests.support.public_publisher import PublicPublisher

PUBLISHER = "44.128.7.9"


@pytest.fixture(scope="session", autouse=True)
def _public_authorities() -> Iterator[None]:
    """Trust public authorities, which have signed the certificates of image registries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE")
        yield


@pytest.fixture(scope="session")
def publisher_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give this namespace a name server and a public address, and run a publisher there."""
    scratch = tmp_path_factory.mktemp("publisher")
    resolver = scratch / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\n", encoding="utf-8")
    subprocess.run(["mount", "--bind", resolver, "/etc/resolv.conf"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "address", "add", f"{PUBLISHER}/32", "dev", "lo"], check=True)
    (scratch / "zone.json").write_text(json.dumps({"news.example.org": [[PUBLISHER]]}), encoding="utf-8")
    with started([sys.executable, "-m", "tests.support.public_publisher", str(scratch)]):
        yield scratch


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def publisher(publisher_folder: Path) -> AsyncIterator[PublicPublisher]:
    async with stacks.publisher_in(publisher_folder) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, publisher_folder: Path
) -> AsyncIterator[Stack]:
    assert publisher_folder.exists()
    files = request.module.FILES
    folder = tmp_path_factory.mktemp("stack")
    async with stacks.running(request, folder, *files, left_out=missing_images(files)) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader(stack: Stack, publisher: PublicPublisher) -> AsyncIterator[Reader]:
    async with stacks.reader(stack, publisher) as alice:
        yield alice
