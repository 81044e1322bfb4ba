"""Distributed tracing of changes, from the poll that detects a change to the receipts for its notifications.

A detected change is stored as a delta, which contains the differences between two versions of a channel. Every process
computes the trace id from the delta (:attr:`service.model.Delta.trace_id`), so messages need not contain the id. Each
step is logged. If the extra ``otel`` is installed and OpenTelemetry's environment variables configure an exporter, each
step is also exported as a span.
"""

import time
from collections.abc import Callable
from typing import Final

import structlog

from service.settings import is_tracing_enabled

FIRST_STEP: Final = "found"
"""Name of the step that begins a trace: a poll detected the change."""
_STEPS_PER_USER: Final = frozenset({"sent", "received"})
"""Steps that are recorded for each user, which in a busy fleet means thousands of times per second. They are logged at
level DEBUG."""

log = structlog.get_logger(__name__)


class Tracing:
    """Records the steps of traces that take place in this process."""

    sink: Callable[..., None] | None = None
    """The function that exports steps, called like
    :meth:`service.observability.otel_exporter.SpanExporter.export_step`; None if steps are not exported.

    It must not block or raise."""

    def record_step(self, trace_id: str, name: str, began_s: float, **attributes: str | int) -> None:
        """Log the step ``name`` of a trace. The step began at ``began_s`` (Unix time) and ends now.

        If an exporter is configured, the step is also exported.
        """
        ended_s = time.time()
        (log.debug if name in _STEPS_PER_USER else log.info)(
            "trace step recorded", step=name, trace=trace_id, took_s=round(ended_s - began_s, 3), **attributes
        )
        if self.sink is not None:
            self.sink(trace_id, name, min(began_s, ended_s), ended_s, attributes, first=name == FIRST_STEP)


TRACING: Final = Tracing()
"""The recorder of this process."""


def configure() -> None:
    """Enable the export of spans if the environment variables configure it and OpenTelemetry is installed."""
    if not is_tracing_enabled():
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - an extra

        from service.observability.otel_exporter import SpanExporter  # noqa: PLC0415 - an extra
    except ImportError as error:
        log.warning("span export disabled", advice="Install coronet[otel].", error=str(error))
        return
    TRACING.sink = SpanExporter(BatchSpanProcessor(OTLPSpanExporter())).export_step
