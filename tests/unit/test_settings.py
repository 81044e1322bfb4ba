"""Sources of settings, and the address of the service manager."""

import os
from math import inf
from pathlib import Path

import pytest

from service.settings import load, load_with_origins, read_notify_socket


def test_an_empty_secret_file_does_not_override_other_sources(tmp_path: Path) -> None:
    (tmp_path / "full").write_text("from a file\n")
    (tmp_path / "empty").write_text("\n")
    environ = {
        "CORONET_XMPP_PASSWORD": "from a variable",
        "CORONET_XMPP_PASSWORD_FILE": str(tmp_path / "empty"),
        "CORONET_REDIS_PASSWORD": "from a variable",
        "CORONET_REDIS_PASSWORD_FILE": str(tmp_path / "full"),
    }
    settings = load(environ)
    assert settings.xmpp_password.get_secret_value() == "from a variable"
    assert settings.redis_password.get_secret_value() == "from a file"
    assert load_with_origins(environ)[1]["xmpp_password"] == "environment"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ("", inf)),
        ({"NOTIFY_SOCKET": "/run/systemd/notify"}, ("/run/systemd/notify", inf)),
        ({"NOTIFY_SOCKET": "@abstract", "WATCHDOG_USEC": "30000000"}, ("\0abstract", 30.0)),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "5000000", "WATCHDOG_PID": str(os.getpid())}, ("/n", 5.0)),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "1"}, ("/n", inf)),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "soon"}, ("/n", inf)),
    ],
)
def test_the_notify_socket_and_the_watchdog_timeout_are_read_from_the_environment(
    environ: dict[str, str], expected: tuple[str, float]
) -> None:
    assert read_notify_socket(environ) == expected
