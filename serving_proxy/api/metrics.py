# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of the control plane; hosts have the metrics of requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from serving_proxy.control.plane import Plane
from serving_proxy.deploy.views import share

_PREFIX = "recprocessor_proxy_"
_LIVE = {
    "epoch": "The epoch of its timeline that a version serves",
    "age_seconds": "Time since the newest sample that the served epoch knows of",
    "held": "1 if a rollback holds the version at its epoch",
    "rows_per_second": "Number of rows that deltas change in a second",
    "overlay_bytes": "Memory of changed rows beside the table files, of all hosts",
    "refused": "Number of refused deltas and other faults of the timeline",
}
_FIELDS = {"age_seconds": "age_s", "rows_per_second": "rows_per_s"}


class PlaneCollector(Collector):
    """Reads the metrics from the present state when they are collected."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        control = self._plane.control
        up = GaugeMetricFamily(f"{_PREFIX}host_up", "1 if the host runs", labels=["host", "origin"])
        restarts = CounterMetricFamily(f"{_PREFIX}host_restarts", "Number of restarts of the host", labels=["host"])
        for host in self._plane.supervisor.views():
            up.add_metric([host.name, host.origin], float(host.alive))
            restarts.add_metric([host.name], host.restarts)
        state = GaugeMetricFamily(
            f"{_PREFIX}version_state", "1 for the state that the version is in", labels=["model", "version", "state"]
        )
        percent = GaugeMetricFamily(
            f"{_PREFIX}traffic_percent", "Percentage of the requests", labels=["model", "version"]
        )
        for name, model in control.models.items():
            for number, version in model.versions.items():
                if version.active or version.desired:
                    state.add_metric([name, str(number), version.state.value], 1.0)
                    percent.add_metric([name, str(number)], share(model, number))
        yield from (up, restarts, state, percent)
        yield from self._live()
        yield from self._guard()
        yield from self._cores()
        jobs = GaugeMetricFamily(f"{_PREFIX}jobs_running", "Number of running jobs", labels=["kind"])
        for kind, count in Counter(job.row.kind for job in self._plane.jobs.running()).items():
            jobs.add_metric([kind], count)
        yield jobs
        yield GaugeMetricFamily(f"{_PREFIX}generation", "Generation of desired.json", value=control.desired.generation)
        yield GaugeMetricFamily(
            f"{_PREFIX}fault", "1 while the state directory cannot be written to", value=bool(control.fault)
        )

    def _cores(self) -> Iterator[Metric]:
        allocator = self._plane.cores.allocator
        if allocator is None:
            return
        labels = ["model", "version"]
        cores = GaugeMetricFamily(
            f"{_PREFIX}cores", "Number of cores of the version, if cores are divided", labels=labels
        )
        demand = GaugeMetricFamily(
            f"{_PREFIX}core_demand", "Number of cores that the version's requests keep busy", labels=labels
        )
        for name, mine in allocator.cores.items():
            cores.add_metric(name.rsplit("/", 1), len(mine))
        for name, estimate in ({} if allocator.state is None else allocator.state.estimates).items():
            demand.add_metric(name.rsplit("/", 1), estimate.cores)
        limit = GaugeMetricFamily(
            f"{_PREFIX}core_limit", "Largest number of requests in flight, if cores are scarce", labels=labels
        )
        for name, most in allocator.limits.items():
            limit.add_metric(name.rsplit("/", 1), most.most)
        yield from (cores, demand, limit)
        yield CounterMetricFamily(
            f"{_PREFIX}core_moves", "Number of changes of a pool's cores", value=allocator.moves_made
        )

    def _live(self) -> Iterator[Metric]:
        for name, text in _LIVE.items():
            metric = GaugeMetricFamily(f"{_PREFIX}live_{name}", text, labels=["model", "version"])
            for (model, number), live in self._plane.observer.live.figures.items():
                value = getattr(live, _FIELDS.get(name, name))
                if value is not None:
                    metric.add_metric([model, str(number)], float(value))
            yield metric

    def _guard(self) -> Iterator[Metric]:
        labels = ["model", "version", "ruling"]
        ruling = GaugeMetricFamily(f"{_PREFIX}guard_ruling", "1 for the guard's ruling", labels=labels)
        for name in self._plane.control.models:
            for number, watched in self._plane.guard.watched(name).items():
                ruling.add_metric([name, str(number), watched.verdict.ruling.value], 1.0)
        yield ruling
        alerts = CounterMetricFamily(f"{_PREFIX}alerts", "Number of alerts to the webhook", labels=["outcome"])
        if self._plane.alerts is not None:
            alerts.add_metric(["sent"], self._plane.alerts.sent)
            alerts.add_metric(["lost"], self._plane.alerts.lost)
        yield alerts


def registry(plane: Plane) -> CollectorRegistry:
    """Return a registry with the metrics of a control plane."""
    metrics = CollectorRegistry(auto_describe=False)
    metrics.register(PlaneCollector(plane))
    return metrics
