"""Logging configuration: one line per event on stderr, as JSON or readable text, with secrets redacted (I10).

Coronet's code logs with ``structlog.get_logger()``. Events that libraries log with :mod:`logging`, from level WARNING
upwards, are written in the same format.
"""

import logging
import re
import sys
from collections.abc import Iterable
from typing import Any

import structlog
import structlog.tracebacks
from pydantic import SecretStr

from service.settings import Settings

_USERINFO = re.compile(r"(?<=://)[^\s/@]+@")
_MIN_SECRET_CHARS = 6  # redacting shorter secrets would also remove ordinary words


def configure(settings: Settings) -> None:
    """Configure logging of this process with the level and format in ``settings``; call this once per program."""
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _RedactingFormatter(_secrets(settings), foreign_pre_chain=shared, processors=_renderers(settings))
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for package in ("service", "bots", "workers"):
        logging.getLogger(package).setLevel(level)


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` in which each of ``secrets``, and the user name and password of each URL, is ``[secret]``."""
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return _USERINFO.sub("[secret]@", text)


class _RedactingFormatter(structlog.stdlib.ProcessorFormatter):
    """A log formatter that redacts the complete line, including fields, tracebacks and events of libraries."""

    def __init__(self, secrets: tuple[str, ...], **arguments: Any) -> None:
        super().__init__(**arguments)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record), self._secrets)


def _renderers(settings: Settings) -> list[structlog.typing.Processor]:
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if settings.log_json:
        # Without local variables, which contain users' data and are large.
        tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        return [
            remove_meta,
            structlog.processors.ExceptionRenderer(tracebacks),
            structlog.processors.JSONRenderer(),
        ]
    plain = structlog.dev.plain_traceback
    return [remove_meta, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]


def _secrets(settings: Settings) -> tuple[str, ...]:
    values = (value for _, value in settings if isinstance(value, SecretStr))
    return tuple(value.get_secret_value() for value in values if len(value) >= _MIN_SECRET_CHARS)
