"""``coronet upgrade --check``: checks, without modifying any data, whether this version can use the store's data."""

from importlib.metadata import version

import msgspec

from service.operations.restore import live_programs
from service.settings import Settings
from service.store import open_store
from service.store.client.data_loss_guard import NEEDED_SCHEMA_VERSION, READ_IDENTITY, SCHEMA_VERSION, parse_identity


class UpgradeCheck(msgspec.Struct, frozen=True):
    """The result of an upgrade check.

    - ``ok`` is true if this version can use the store's data.
    - ``lines`` are details for the operator.
    """

    ok: bool
    lines: tuple[str, ...]


def judge(
    stored: int, stored_needs: int, known: int = SCHEMA_VERSION, needs: int = NEEDED_SCHEMA_VERSION
) -> UpgradeCheck:
    """Determine whether a new version can use the store's data, and whether a rolling restart is possible.

    A rolling restart replaces the running programs one after another. It is possible if programs of the old version can
    use data that the new version writes. The result also states whether the data will be migrated.

    All parameters are versions of the data's schema:

    - ``stored``: the version of the stored data; 0 if none is recorded.
    - ``stored_needs``: the lowest version that a program must support to use the stored data.
    - ``known``: the highest version that the new version of Coronet supports. It also writes data of this version.
    - ``needs``: the lowest version that a program must support to use data written by the new version.
    """
    if stored_needs > known:
        line = (
            f"This version cannot use the store: its data needs version {stored_needs}, and this version knows "
            f"{known}. Install a newer Coronet."
        )
        return UpgradeCheck(ok=False, lines=(line,))
    if not stored:
        first = f"The store does not record a version of its data yet. The first program that uses it records {known}."
    else:
        first = f"The store's data has version {stored}, this version of Coronet writes {known}."
    if 0 < stored < known:
        second = "The first program of this version that starts migrates the data."
    else:
        second = "No migration is needed."
    if stored and needs > stored:
        third = (
            "A rolling restart is not possible: programs of the present version refuse migrated data. Make a backup, "
            "stop all programs, and start those of this version."
        )
    else:
        third = "A rolling restart is possible: make a backup, then replace one program after another."
    return UpgradeCheck(ok=True, lines=(first, second, third))


async def check(settings: Settings) -> UpgradeCheck:
    """Check whether this version of Coronet can use the store, and list the programs that are using the store.

    No data is changed, except that workers' expired leases are removed. Raises :class:`service.errors.StoreUnavailable`
    if the store cannot be read.
    """
    store = open_store(settings, is_guarded=False)
    try:
        found = parse_identity(await store.redis.call(*READ_IDENTITY))
        result = judge(found.schema, found.needs)
        live = await live_programs(store)
    finally:
        await store.close()
    running = f"Running now: {', '.join(live)}." if live else "No program uses the store at present."
    return UpgradeCheck(result.ok, (f"This is Coronet {version('coronet')}.", *result.lines, running))
