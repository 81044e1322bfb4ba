"""A machine without ejabberd is told what to install."""

from pathlib import Path

import pytest

from service.errors import OperationalError
from tests.support import ejabberd


async def test_a_missing_ejabberd_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ejabberd, "_LIBRARIES", tmp_path)
    with pytest.raises(OperationalError, match="apt-get install ejabberd"):
        await ejabberd.PrivateEjabberd(tmp_path / "server").start()
