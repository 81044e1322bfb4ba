"""The Grafana dashboard uses only metrics that exist."""

import json
import re
from pathlib import Path

from prometheus_client import REGISTRY

from service.observability import metrics

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
