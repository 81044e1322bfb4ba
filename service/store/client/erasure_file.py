"""The erasure file: the ids of recently erased users, kept outside of the store.

After an older backup was restored, users who were erased since have to be erased again. The list of erased users in the
store could be lost with the store. Each program therefore also writes it to a file beside the store's identity file,
once a minute. A user id is a hash of the address.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from service.model import UserId
from service.private_files import lock_file, write_private
from service.settings import SettingsInvalid

ERASURES_KEPT_DAYS: Final = 400
"""How long erased users are listed. A backup that is older must not be restored."""


class ErasureFile:
    """The erasure file of one machine, which the machine's programs share."""

    def __init__(self, identity_file: Path) -> None:
        """Create an accessor for the erasure file beside ``identity_file``. Neither file need exist."""
        self.path = identity_file.with_name(f"{identity_file.name}.erased")

    def read(self) -> dict[UserId, int]:
        """Return when each user was erased (Unix s); {} if there is no file.

        Raises :class:`SettingsInvalid` if the file cannot be read.
        """
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=dict[UserId, int])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            raise SettingsInvalid(f"The list of erased users in {self.path} cannot be read ({error}).") from error

    def add(self, erased: Mapping[UserId, int], now_s: int) -> None:
        """Add users with the times of their erasures, and drop erasures older than ``ERASURES_KEPT_DAYS``.

        Times, including the present time ``now_s``, are Unix s. Raises ``OSError`` if the file cannot be written.
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
