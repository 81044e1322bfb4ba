"""``coronet backup``: a copy of a running store in a file."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO

from service.errors import UserError
from service.operations.backup_format import BackupFileWriter, describe_counts
from service.private_files import open_private
from service.settings import Settings
from service.store import opened
from service.store.backup.export import StoreExport


async def back_up(settings: Settings, file: IO[bytes]) -> str:
    """Write a backup of the store to the binary file ``file``, while programs run; return a summary.

    Raises :class:`service.errors.OperationalError` if the backup cannot be completed; the file is then not valid.
    """
    async with opened(settings) as store:
        reader = StoreExport(store.redis)
        target = BackupFileWriter(file, version("coronet"), await reader.origin())
        async for record in reader.records():
            target.add(record)
        target.finish()
    return f"Backed up {describe_counts(target.counts)}."


@contextmanager
def new_file(name: str) -> Iterator[IO[bytes]]:
    """Open a new file (mode 0600) for writing; with the ``name`` "-", standard output instead.

    The file gets its name when the context ends without an error, so an incomplete file never has this name. Raises
    :class:`UserError` if the file cannot be written.
    """
    if name == "-":
        yield sys.stdout.buffer
        return
    try:
        with open_private(Path(name)) as file:
            yield file
    except OSError as error:
        raise UserError(f"The backup cannot be written to {name}: {error}.") from error
