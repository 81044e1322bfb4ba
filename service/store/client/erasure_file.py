"""The erasure file: the ids of recently erased users, kept outside the store.

When a backup is restored, users who were erased after the backup was made must be erased again. The store has a list
of erased users, but this list could be lost together with the store. Each process therefore copies the list once a
minute to a file beside the store's identity file. The file contains no addresses: a user id is a hash of the user's
address.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from service.model import UserId
from service.private_files import lock_file, write_private
from service.settings import SettingsInvalid

ERASURES_KEPT_DAYS: Final = 400
"""How many days erased users stay in the file. Backups older than this must not be restored."""


class ErasureFile:
    """The file in which a machine records recently erased users, so that the record survives the loss of the store.

    All processes on the machine share the file.
    """

    def __init__(self, identity_file: Path) -> None:
        """Create an accessor for the erasure file that belongs to ``identity_file``. Neither file need exist."""
        self.path = identity_file.with_name(f"{identity_file.name}.erased")

    def read(self) -> dict[UserId, int]:
        """Return a mapping from erased users to the times of their erasure (Unix s); empty if there is no file.

        Raises :class:`SettingsInvalid` if the file cannot be read.
        """
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=dict[UserId, int])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            raise SettingsInvalid(f"The list of erased users in {self.path} cannot be read ({error}).") from error

    def add(self, erased: Mapping[UserId, int], now_s: int) -> None:
        """Add users to the file, and remove users who were erased more than ``ERASURES_KEPT_DAYS`` days ago.

        ``erased`` maps each user to the time of the erasure (Unix s). If it is empty, nothing is done. ``now_s`` is the
        Unix time. Raises ``OSError`` if the file cannot be written, and :class:`SettingsInvalid` if it cannot be read.
        """
        if not erased:
            return
        with lock_file(self.path):
            held = self.read()
            oldest_s = now_s - ERASURES_KEPT_DAYS * 86_400
            latest = {uid: max(at_s, held.get(uid, 0)) for uid, at_s in erased.items()}
            kept = {uid: at_s for uid, at_s in (held | latest).items() if at_s >= oldest_s}
            if kept != held:
                write_private(self.path, msgspec.json.encode(kept).decode())
