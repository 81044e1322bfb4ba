"""Logging, set up once per program: one line per event on stderr, as JSON or for people, without secrets.

Our own code logs with ``structlog.get_logger()``; what libraries say through the standard module
takes the same road, from warnings upwards.
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
_SHORTEST_SECRET = 6  # hiding a shorter one would blank ordinary words


def configure(settings: Settings) -> None:
    """Send every log line of this process to stderr, in the form the settings ask for."""
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
    handler.setFormatter(_Redacting(_secrets(settings), foreign_pre_chain=shared, processors=_rendering(settings)))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for ours in ("service", "bots", "workers"):
        logging.getLogger(ours).setLevel(level)


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return the text without these secrets and without the user part of any URL."""
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return _USERINFO.sub("[secret]@", text)


class _Redacting(structlog.stdlib.ProcessorFormatter):
    """Renders first and redacts the finished line, so that no field, traceback or library gets around it."""

    def __init__(self, secrets: tuple[str, ...], **arguments: Any) -> None:
        super().__init__(**arguments)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record), self._secrets)


def _rendering(settings: Settings) -> list[structlog.typing.Processor]:
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if settings.log_json:
        # Without local variables: they hold people's data, and whole pipelines.
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
    return tuple(value.get_secret_value() for value in values if len(value) >= _SHORTEST_SECRET)
