"""OpenTelemetry: the tracer of this process, which the standard variables with OTEL_ configure.

| variable | meaning here |
|---|---|
| OTEL_TRACES_EXPORTER | otlp (default): OTLP over HTTP; console: standard output |
| OTEL_EXPORTER_OTLP_PROTOCOL, …_TRACES_PROTOCOL | http/protobuf, the only one |
| OTEL_SERVICE_NAME | tailbound-runtime if it is not set |
| every other | as the SDK and its exporter have it: endpoint, headers, sampler, batches, resource |

Only imported where tracing is asked for: its packages are optional, and cost a start time.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tailbound_runtime import __version__
from tailbound_runtime.config import ConfigError

SERVICE_NAME: Final = "tailbound-runtime"
_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HTTP: Final = "http/protobuf"
_HEADERS: Final = (("traceparent", b"traceparent"), ("tracestate", b"tracestate"))


class Spent(NamedTuple):
    """A stage of a request, in times of `time.perf_counter`."""

    stage: str
    began: float
    ended: float


class Tracer:
    """Makes spans of what is over; their times are parameters. Any thread may use it."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(SERVICE_NAME, __version__)
        self._propagator = TraceContextTextMapPropagator()

    def request(
        self,
        name: str,
        headers: Mapping[bytes, bytes],
        spent: Spent,
        stages: Sequence[Spent],
        attributes: Mapping[str, str | int],
        failed: bool,
    ) -> Span:
        """The span of a request, below the caller's that its headers name, and those of its stages.

        failed: whether the server is to blame for its answer
        """
        carrier = {name: headers[key].decode("latin-1") for name, key in _HEADERS if key in headers}
        since = _clock()
        span = self._tracer.start_span(
            name,
            self._propagator.extract(carrier),
            SpanKind.SERVER,
            attributes,
            start_time=since(spent.began),
        )
        for each in stages:
            self.stage(span, each)
        if failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end(since(spent.ended))
        return span

    def stage(self, span: Span, spent: Spent) -> None:
        """The span of a stage of a request, also of one whose own span has ended."""
        if span.get_span_context().trace_flags.sampled:
            since = _clock()
            part = self._tracer.start_span(
                spent.stage, set_span_in_context(span), start_time=since(spent.began)
            )
            part.end(since(spent.ended))

    def close(self) -> None:
        """Send what has not been sent; blocks."""
        self._provider.shutdown()


def tracer_of(environment: Mapping[str, str]) -> Tracer:
    """The tracer that these variables describe. Raises ConfigError."""
    try:
        return _tracer_of(environment)
    except ValueError as error:  # of the SDK, which often names no variable
        names = ", ".join(sorted(name for name in environment if name.startswith("OTEL_")))
        raise ConfigError(
            f"one of the variables {names} cannot be used: {error}: correct it, or set TAILBOUND_TRACING to "
            "off"
        ) from error


def _tracer_of(environment: Mapping[str, str]) -> Tracer:
    exporter = _exporter(environment)
    attributes = {"service.version": __version__}
    given = environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if "OTEL_SERVICE_NAME" not in environment and "service.name=" not in given:
        attributes["service.name"] = SERVICE_NAME
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracer(provider)


def _exporter(environment: Mapping[str, str]) -> SpanExporter:
    kind = environment.get(_EXPORTER) or "otlp"
    if kind == "console":
        return ConsoleSpanExporter()
    if kind != "otlp":
        raise ConfigError(f"{_EXPORTER} is {kind!r}: set it to otlp or console, or TAILBOUND_TRACING to off")
    name = next((name for name in _PROTOCOLS if environment.get(name)), None)
    if name is not None and environment[name] != _HTTP:
        raise ConfigError(
            f"{name} is {environment[name]!r}: set it to {_HTTP}, which collectors take on port 4318"
        )
    return OTLPSpanExporter()


def _clock() -> Callable[[float], int]:
    """Nanoseconds since 1970 of a time of `perf_counter`."""
    epoch, counter = time.time_ns(), time.perf_counter()
    return lambda at: epoch + round((at - counter) * 1e9)
