"""What the service counts, for Prometheus. Names follow those of other model servers."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Figures:
    """The counters of one service."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter("owlmine_requests", "Requests by status.", ["status"], registry=registry)
        self.request_seconds = Histogram(
            "owlmine_request_duration_seconds",
            "From a request's head to its answer.",
            registry=registry,
            buckets=_SECONDS,
        )
        self.queue_seconds = Histogram(
            "owlmine_queue_duration_seconds",
            "Time that queries waited for a batch.",
            registry=registry,
            buckets=_SECONDS,
        )
        self.batch_seconds = Histogram(
            "owlmine_batch_duration_seconds", "Time to answer a batch.", registry=registry, buckets=_SECONDS
        )
        self.batch_size = Histogram(
            "owlmine_batch_size", "Queries answered together.", registry=registry, buckets=_SIZES
        )
        self.queue_size = Gauge("owlmine_queue_size", "Queries that wait.", registry=registry)
        self.loads = Counter(
            "owlmine_model_loads", "Models loaded, reloaded or refused.", ["model", "outcome"], registry=registry
        )

    def text(self) -> bytes:
        return generate_latest(self._registry)
