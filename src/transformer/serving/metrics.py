"""Metrics of the server in the format of Prometheus, without addresses, texts or unknown paths in labels."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from transformer.serving.interfaces import Engine

disable_created_metrics()
METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class ServerMetrics:
    """Counters and histograms of one server; implements `transformer.serving.interfaces.Metrics`."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "transformer_requests", "Answered requests.", ("method", "route", "status"), registry=registry
        )
        self._request_seconds = Histogram(
            "transformer_request_seconds", "Time to answer.", ("route",), buckets=SECONDS, registry=registry
        )
        self._in_progress = Gauge("transformer_requests_in_progress", "Requests not yet answered.", registry=registry)
        self._tokens = Counter(
            "transformer_tokens", "Estimated tokens of finished batches.", ("model",), registry=registry
        )
        self._batch_items = Histogram(
            "transformer_batch_items", "Texts in a batch.", ("model",), buckets=COUNTS, registry=registry
        )
        self._batch_seconds = Histogram(
            "transformer_batch_seconds", "Time of a batch.", ("model",), buckets=SECONDS, registry=registry
        )
        self._queue_seconds = Histogram(
            "transformer_queue_seconds", "Time of a text in the queue.", ("model",), buckets=SECONDS, registry=registry
        )
        self._worker_deaths = Counter(
            "transformer_worker_deaths", "Workers that ended unexpectedly.", ("model",), registry=registry
        )

    def register_engine(self, engine: Engine) -> None:
        """Adds the state of an engine, which is read when metrics are collected."""
        self._registry.register(_EngineCollector(engine))

    def begin_request(self) -> None:
        """Counts a request that has arrived."""
        self._in_progress.inc()

    def end_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts an answered request.

        Args:
            method: HTTP method.
            route: Path of its operation, with names of parameters; empty without one.
            status: HTTP status.
            seconds: Time from its headers to the end of its answer.
        """
        self._in_progress.dec()
        known = method if method in METHODS else "other"
        self._requests.labels(known, route or "unknown", str(status)).inc()
        self._request_seconds.labels(route or "unknown").observe(seconds)

    def observe_batch(self, model: str, n_items: int, n_tokens: int, seconds: float) -> None:
        """Records a finished batch."""
        self._tokens.labels(model).inc(n_tokens)
        self._batch_items.labels(model).observe(n_items)
        self._batch_seconds.labels(model).observe(seconds)

    def observe_queue_time(self, model: str, seconds: float) -> None:
        """Records the time that an item spent in the queue."""
        self._queue_seconds.labels(model).observe(seconds)

    def worker_died(self, model: str) -> None:
        """Records an unexpected end of a worker."""
        self._worker_deaths.labels(model).inc()

    def render(self) -> bytes:
        """Returns all metrics in the text format."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    """Reads the state of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Returns nothing, so that registration does not read the state."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yields the present values."""
        status = self._engine.status()
        yield GaugeMetricFamily("transformer_queued_tokens", "Estimated tokens that wait.", status.queued_tokens)
        yield GaugeMetricFamily("transformer_queued_items", "Texts that wait.", status.queued_items)
        ready = GaugeMetricFamily("transformer_model_ready", "Whether a model is loaded.", labels=("model",))
        workers = GaugeMetricFamily("transformer_model_workers", "Running workers.", labels=("model",))
        memory = GaugeMetricFamily("transformer_model_memory_bytes", "Memory of a model.", labels=("model",))
        for name, model in status.models.items():
            ready.add_metric((name,), model.state == "ready")
            workers.add_metric((name,), model.workers)
            memory.add_metric((name,), model.memory)
        yield from (ready, workers, memory)
