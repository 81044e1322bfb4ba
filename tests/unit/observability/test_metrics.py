"""The Grafana dashboard uses only metrics that exist, and gauges of several nodes add up."""

import json
import re
from pathlib import Path

from prometheus_client import REGISTRY, Gauge

from service.observability import metrics
from service.observability.metrics import GaugeShare

DASHBOARD = Path(__file__).parents[3] / "compose" / "grafana" / "coronet.json"
OF_HISTOGRAMS = "_bucket"


def test_every_metric_in_the_dashboard_exists() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    queried = {name for panel in board["panels"] for each in panel["targets"] for name in _names(each["expr"])}
    exported = {name for family in REGISTRY.collect() for name in (family.name, f"{family.name}_total")}
    assert metrics.POLLS
    assert {name.removesuffix(OF_HISTOGRAMS) for name in queried} - exported == set()
    assert len(queried) > 10


def _names(expression: str) -> list[str]:
    return re.findall(r"\b(?:coronet|process)_\w+", expression)


def test_a_gauge_is_the_sum_of_its_shares() -> None:
    gauge = Gauge("of_two_nodes", "A gauge.", ["kind"], registry=None)
    first, second = GaugeShare(gauge), GaugeShare(gauge)
    first.set({"a": 2, "b": 1})
    second.set({"a": 3})
    first.set({"a": 1, "c": 4})
    values = {sample.labels["kind"]: sample.value for family in gauge.collect() for sample in family.samples}
    assert values == {"a": 4, "b": 0, "c": 4}
