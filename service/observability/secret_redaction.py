"""Removes secrets from logs and other output (guarantee I10: no secret appears in a reply, log or page)."""

import logging
import re
from collections.abc import Iterable
from typing import Any

import structlog
import structlog.tracebacks
from pydantic import SecretStr

from service.settings import Settings

_USERINFO = re.compile(r"(?<=://)[^\s/@]+@")
_MIN_SECRET_CHARS = 6  # redacting shorter secrets would also remove ordinary words


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` with ``[secret]`` in place of every secret.

    The secrets are the texts in ``secrets``, and the user name and password in any URL.
    """
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return _USERINFO.sub("[secret]@", text)


class RedactingFormatter(structlog.stdlib.ProcessorFormatter):
    """A log formatter that redacts the complete line, including fields, tracebacks and events logged by libraries."""

    def __init__(self, secrets: tuple[str, ...], **arguments: Any) -> None:
        """Create a formatter that redacts ``secrets``."""
        super().__init__(**arguments)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """Return the log line for ``record``, with ``[secret]`` in place of every secret."""
        return redacted(super().format(record), self._secrets)


def secrets_of(settings: Settings) -> tuple[str, ...]:
    """Return the values of all secret settings, except those that are too short to be redacted."""
    values = (value for _, value in settings if isinstance(value, SecretStr))
    return tuple(value.get_secret_value() for value in values if len(value) >= _MIN_SECRET_CHARS)
