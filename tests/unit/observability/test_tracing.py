"""Export of trace steps as OpenTelemetry spans: one trace per change, across processes."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service.model import Delta
from service.observability import tracing
from service.observability.otel_exporter import SpanExporter
from service.observability.tracing import FIRST_STEP, Tracing
from service.settings import is_tracing_enabled

ONE = Delta("a" * 40, 1, 0, 1_000.25, ())
OTHER = Delta("a" * 40, 1, 0, 1_000.5, ())


def _process() -> tuple[Tracing, InMemorySpanExporter]:
    """Return the trace recorder of one process and the exporter that collects its spans."""
    exported, recorder = InMemorySpanExporter(), Tracing()
    recorder.sink = SpanExporter(SimpleSpanProcessor(exported)).export_step
    return recorder, exported


def _trace_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def test_steps_of_several_processes_form_one_trace_with_the_poll_as_root() -> None:
    (worker, of_worker), (bot, of_bot) = _process(), _process()
    worker.record_step(ONE.trace_id, FIRST_STEP, 900.0, channel=ONE.channel, changes=2)
    worker.record_step(OTHER.trace_id, FIRST_STEP, 900.0)
    bot.record_step(ONE.trace_id, "sent", 901.0, message="m1")
    found, unrelated = of_worker.get_finished_spans()
    (sent,) = of_bot.get_finished_spans()
    assert [_trace_id(span) for span in (found, unrelated, sent)] == [ONE.trace_id, OTHER.trace_id, ONE.trace_id]
    assert ONE.trace_id != OTHER.trace_id
    assert found.parent is None
    assert found.context is not None
    assert sent.parent is not None
    assert sent.context is not None
    assert sent.parent.span_id == found.context.span_id != sent.context.span_id
    assert (found.start_time, found.attributes) == (900 * 10**9, {"channel": ONE.channel, "changes": 2})


def test_all_processes_sample_the_same_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    (worker, of_worker), (bot, of_bot) = _process(), _process()
    for number in range(100):
        trace_id = Delta("b" * 40, 1, 0, float(number), ()).trace_id
        worker.record_step(trace_id, FIRST_STEP, 900.0)
        bot.record_step(trace_id, "sent", 901.0)
    sampled = [_trace_id(span) for span in of_worker.get_finished_spans()]
    assert sampled == [_trace_id(span) for span in of_bot.get_finished_spans()]
    assert 20 < len(sampled) < 80


@pytest.mark.parametrize(
    ("environ", "enabled"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, False),
    ],
)
def test_opentelemetry_variables_enable_and_disable_tracing(environ: dict[str, str], *, enabled: bool) -> None:
    assert is_tracing_enabled(environ) is enabled


def test_no_spans_are_exported_without_opentelemetry_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER"):
        monkeypatch.delenv(name, raising=False)
    tracing.configure()
    assert tracing.TRACING.sink is None
