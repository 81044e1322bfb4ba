"""Logging configuration: one line per event on stderr, as JSON or readable text.

Secrets are removed from all lines (guarantee I10: no secret appears in a log).

Coronet's code logs with ``structlog.get_logger()``. Libraries log with :mod:`logging`. Library events of level WARNING
and above are written in the same format.
"""

import logging
import sys

import structlog
import structlog.tracebacks

from service.observability.secret_redaction import RedactingFormatter, secrets_of
from service.settings import Settings


def configure(settings: Settings) -> None:
    """Configure this process's logging with the level and format in ``settings``.

    Each program must call this function once.
    """
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
        RedactingFormatter(secrets_of(settings), foreign_pre_chain=shared, processors=_renderers(settings))
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for package in ("service", "bots", "workers"):
        logging.getLogger(package).setLevel(level)


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
