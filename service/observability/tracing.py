"""A change's way through the fleet, from the poll that found it to the receipts, step by step.

Every step names the change by one id, :attr:`service.model.Delta.trace_id`. It is made of what each process on the way
knows of the change, so that nothing has to be carried along. Each step is a line in the log, and, where the extra
``otel`` is installed and OpenTelemetry's environment variables say where to send them, a span of the trace of that id.
"""

import time
from collections.abc import Callable
from typing import Final

import structlog

from service.settings import is_tracing_enabled

FOUND: Final = "found"
_FOR_EACH_PERSON: Final = frozenset({"sent", "received"})
"""Steps that a busy fleet makes thousands of times a second: in the log they are for debugging."""

log = structlog.get_logger(__name__)


class Tracing:
    """Takes steps. Without a sink they are only logged."""

    sink: Callable[..., None] | None = None
    """Takes steps besides the log: :meth:`service.observability.otel.Exporting.step`. It neither waits nor raises."""

    def step(self, trace: str, name: str, began_s: float, **told: str | int) -> None:
        """Note a step of a change that began then (Unix s) and has ended now."""
        ended_s = time.time()
        (log.debug if name in _FOR_EACH_PERSON else log.info)(
            name, trace=trace, took_s=round(ended_s - began_s, 3), **told
        )
        if self.sink is not None:
            self.sink(trace, name, min(began_s, ended_s), ended_s, told, first=name == FOUND)


TRACING: Final = Tracing()
"""This process's, as metrics and logs are."""


def configure() -> None:
    """Have steps exported from now on, if the environment wants that and OpenTelemetry is installed."""
    if not is_tracing_enabled():
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - an extra

        from service.observability.otel import Exporting  # noqa: PLC0415 - an extra
    except ImportError as error:
        log.warning("traces are not exported: install coronet[otel]", error=str(error))
        return
    TRACING.sink = Exporting(BatchSpanProcessor(OTLPSpanExporter())).step
