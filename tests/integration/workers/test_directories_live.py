"""Directories in memory on a real Redis: from matrices, through letters, to whoever asks any one worker."""

from contextlib import suppress

from service.errors import NoWorker
from service.model import ChannelId
from service.store import Store
from service.store.directory import Name
from tests.integration.workers.conftest import StartWorker
from tests.support.waiting import until
from workers.directory import DISCOVER

NAMES = [
    Name(f"{number:040x}", 1, frozenset({DISCOVER, "language=de"} if number % 2 else {DISCOVER}))
    for number in range(60)
]


async def test_any_worker_names_channels_from_memory_once_it_has_been_told(
    store: Store, start_worker: StartWorker
) -> None:
    await store.names.register(NAMES, 600.0, changed=False)
    await start_worker()
    await start_worker()

    async def looked_up() -> tuple[ChannelId, ...]:
        with suppress(NoWorker):
            return await store.requests.lookup([DISCOVER], 20, 5.0)
        return ()

    for _ in range(6):
        found = await until(looked_up, "a worker has a share of the directory")
        assert len(set(found)) == 20
        assert set(found) <= {name.id for name in NAMES}
    german = await store.requests.lookup([DISCOVER, "language=de"], 10, 5.0)
    assert len(german) == 10
    assert all(int(name, 16) % 2 for name in german)
    assert await store.requests.lookup(["language=xx"], 10, 5.0) == ()
