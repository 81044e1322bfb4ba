"""Export of trace steps as OpenTelemetry spans; imported only if the extra ``otel`` is installed and enabled.

OpenTelemetry reads its configuration from its own environment variables: the destination (``OTEL_EXPORTER_OTLP_…``),
sampling (``OTEL_TRACES_SAMPLER``) and the process's name (``OTEL_SERVICE_NAME``). Sampling must depend only on the
trace id, so that all processes sample the same traces.
"""

from collections.abc import Mapping
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

_NS_PER_S: Final = 1_000_000_000
_LOW_64_BITS: Final = (1 << 64) - 1


class SpanExporter:
    """Exports the steps of traces to OpenTelemetry as spans."""

    def __init__(self, processor: SpanProcessor) -> None:
        """Create an exporter that passes spans to ``processor``."""
        self._ids = _FixedIdGenerator()
        self._provider = TracerProvider(id_generator=self._ids)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("coronet")

    def export_step(
        self,
        trace_id: str,
        name: str,
        began_s: float,
        ended_s: float,
        attributes: Mapping[str, str | int],
        *,
        first: bool,
    ) -> None:
        """Export a step of a trace, which lasted from ``began_s`` to ``ended_s`` (Unix times).

        ``trace_id`` consists of 32 hexadecimal digits. ``first`` is true for the first step of a trace; its span is the
        parent of all other spans of the trace.
        """
        number = int(trace_id, 16)
        root_span_id = number & _LOW_64_BITS
        context = Context()
        if first:
            self._ids.next_ids = number, root_span_id
        else:
            sampled = self._provider.sampler.should_sample(None, number, name).decision is Decision.RECORD_AND_SAMPLE
            parent = SpanContext(number, root_span_id, is_remote=True, trace_flags=TraceFlags(int(sampled)))
            context = set_span_in_context(NonRecordingSpan(parent), context)
        span = self._tracer.start_span(name, context, attributes=dict(attributes), start_time=int(began_s * _NS_PER_S))
        self._ids.next_ids = None
        span.end(int(ended_s * _NS_PER_S))


class _FixedIdGenerator(RandomIdGenerator):
    """A generator of trace ids and span ids that lets the caller set the next ids.

    ``next_ids`` are the trace id and the span id of the next span. If it is None, random ids are generated.
    """

    next_ids: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        return self.next_ids[0] if self.next_ids else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.next_ids[1] if self.next_ids else super().generate_span_id()
