"""Steps of changes as OpenTelemetry's spans: one trace for each change, whichever processes its steps were in."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service.model import Delta
from service.observability import tracing
from service.observability.otel import Exporting
from service.observability.tracing import FOUND, Tracing
from service.settings import is_tracing_enabled

ONE = Delta("a" * 40, 1, 0, 1_000.25, ())
OTHER = Delta("a" * 40, 1, 0, 1_000.5, ())


def _process() -> tuple[Tracing, InMemorySpanExporter]:
    """What one process of a fleet has."""
    exported, steps = InMemorySpanExporter(), Tracing()
    steps.sink = Exporting(SimpleSpanProcessor(exported)).step
    return steps, exported


def _trace(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def test_steps_in_several_processes_are_one_trace_below_the_poll_that_found_the_change() -> None:
    (worker, of_worker), (bot, of_bot) = _process(), _process()
    worker.step(ONE.trace_id, FOUND, 900.0, channel=ONE.channel, changes=2)
    worker.step(OTHER.trace_id, FOUND, 900.0)
    bot.step(ONE.trace_id, "sent", 901.0, message="m1")
    found, unrelated = of_worker.get_finished_spans()
    (sent,) = of_bot.get_finished_spans()
    assert [_trace(span) for span in (found, unrelated, sent)] == [ONE.trace_id, OTHER.trace_id, ONE.trace_id]
    assert ONE.trace_id != OTHER.trace_id
    assert found.parent is None
    assert found.context is not None
    assert sent.parent is not None
    assert sent.context is not None
    assert sent.parent.span_id == found.context.span_id != sent.context.span_id
    assert (found.start_time, found.attributes) == (900 * 10**9, {"channel": ONE.channel, "changes": 2})


def test_all_processes_keep_the_same_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    (worker, of_worker), (bot, of_bot) = _process(), _process()
    for number in range(100):
        trace = Delta("b" * 40, 1, 0, float(number), ()).trace_id
        worker.step(trace, FOUND, 900.0)
        bot.step(trace, "sent", 901.0)
    kept = [_trace(span) for span in of_worker.get_finished_spans()]
    assert kept == [_trace(span) for span in of_bot.get_finished_spans()]
    assert 20 < len(kept) < 80


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, False),
    ],
)
def test_traces_are_exported_where_opentelemetrys_own_variables_say_so(
    environ: dict[str, str], *, wanted: bool
) -> None:
    assert is_tracing_enabled(environ) is wanted


def test_without_those_variables_nothing_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER"):
        monkeypatch.delenv(name, raising=False)
    tracing.configure()
    assert tracing.TRACING.sink is None
