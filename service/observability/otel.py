"""Steps of changes as OpenTelemetry's spans; imported only where the extra ``otel`` is installed, and wanted.

All that can be set is read by OpenTelemetry itself, from its own environment variables: where spans go
(``OTEL_EXPORTER_OTLP_…``), how many are kept (``OTEL_TRACES_SAMPLER``), what this process is called
(``OTEL_SERVICE_NAME``). Whether a trace is kept follows from its id alone, so that all processes decide alike.
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


class Exporting:
    """Hands steps on to a processor of spans."""

    def __init__(self, processor: SpanProcessor) -> None:
        """Make spans for this processor."""
        self._ids = _Ids()
        self._provider = TracerProvider(id_generator=self._ids)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("coronet")

    def step(
        self, trace: str, name: str, began_s: float, ended_s: float, told: Mapping[str, str | int], *, first: bool
    ) -> None:
        """Hand on a step of a trace (32 hexadecimal digits); the ``first`` one is the parent of all others."""
        number = int(trace, 16)
        root = number & _LOW_64_BITS
        context = Context()
        if first:
            self._ids.wanted = number, root
        else:
            kept = self._provider.sampler.should_sample(None, number, name).decision is Decision.RECORD_AND_SAMPLE
            parent = SpanContext(number, root, is_remote=True, trace_flags=TraceFlags(int(kept)))
            context = set_span_in_context(NonRecordingSpan(parent), context)
        span = self._tracer.start_span(name, context, attributes=dict(told), start_time=int(began_s * _NS_PER_S))
        self._ids.wanted = None
        span.end(int(ended_s * _NS_PER_S))


class _Ids(RandomIdGenerator):
    """``wanted``: the trace and the span that the next span is to have; any, if None."""

    wanted: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        return self.wanted[0] if self.wanted else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.wanted[1] if self.wanted else super().generate_span_id()
