"""Export of trace steps as OpenTelemetry spans; imported only if the extra ``otel`` is installed and enabled.

OpenTelemetry reads its configuration from its own environment variables: the destination (``OTEL_EXPORTER_OTLP_…``),
sampling (``OTEL_TRACES_SAMPLER``) and the process's name (``OTEL_SERVICE_NAME``). Sampling depends only on the trace
id, so that all processes make the same decision.
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
    """Exports steps of traces to OpenTelemetry, as spans."""

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
        """Export a step of a trace, which took from ``began_s`` to ``ended_s`` (Unix s).

        ``trace_id`` has 32 hexadecimal digits. The span of the ``first`` step is the parent of all other spans of the
        trace.
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
    """An id generator for spans whose next ids can be set.

    ``next_ids`` are the trace id and the span id of the next span. If ``next_ids`` is None, the ids are random.
    """

    next_ids: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        return self.next_ids[0] if self.next_ids else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.next_ids[1] if self.next_ids else super().generate_span_id()
