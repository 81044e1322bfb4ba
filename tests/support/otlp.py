"""An OpenTelemetry collector of traces: OTLP over HTTP with protobuf."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

_PROTOBUF = "application/x-protobuf"


class Span(NamedTuple):
    """An exported span. ``parent`` is "" for the root of a trace; ids are hexadecimal; ``told`` are its attributes."""

    name: str
    trace: str
    span: str
    parent: str
    began_ns: int
    ended_ns: int
    told: dict[str, str | int]


class Collector:
    """A collector that keeps the received spans in order of arrival."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.url = ""

    def trace_of(self, **told: str) -> list[Span]:
        """Return all spans, by start time, of the traces in which a span has these attributes."""
        traces = {span.trace for span in self.spans if told.items() <= span.told.items()}
        return sorted((span for span in self.spans if span.trace in traces), key=lambda span: span.began_ns)

    async def export(self, request: web.Request) -> web.Response:
        if request.content_type != _PROTOBUF:
            raise web.HTTPUnsupportedMediaType
        for resource in ExportTraceServiceRequest.FromString(await request.read()).resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    told = {each.key: each.value.string_value or each.value.int_value for each in span.attributes}
                    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
                    self.spans.append(Span(span.name, *ids, span.start_time_unix_nano, span.end_time_unix_nano, told))
        return web.Response(body=ExportTraceServiceResponse().SerializeToString(), content_type=_PROTOBUF)


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """Run a collector on a free port."""
    collector, app = Collector(), web.Application()
    app.router.add_post("/v1/traces", collector.export)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        collector.url = f"http://{host}:{port}"
        yield collector
    finally:
        await runner.cleanup()
