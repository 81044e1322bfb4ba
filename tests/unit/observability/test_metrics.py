"""Metrics have conventional names, the dashboard and the alerts use only metrics that exist, and the docs list all."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY, Gauge
from prometheus_client.metrics_core import Metric

from service.observability import metrics
from service.observability.metrics import GaugeShare

ROOT = Path(__file__).parents[3]
DASHBOARD = ROOT / "compose" / "grafana" / "coronet.json"
ALERTS = ROOT / "compose" / "prometheus" / "alerts.yml"
RUNBOOK = ROOT / "docs" / "runbook.md"
GUIDE = ROOT / "docs" / "operators.md"
TABLE_BEGINS, TABLE_ENDS = "<!-- metrics: begin -->\n", "<!-- metrics: end -->"
NOT_BASE_UNITS = ("_ms", "_milliseconds", "_minutes", "_per_minute", "_hours", "_bits", "_kilobytes", "_percent")
UNITS = ("_seconds", "_bytes", "_ratio", "_per_second")


def families() -> dict[str, Metric]:
    """Return Coronet's metrics by their names in expressions."""
    assert metrics.POLLS
    suffixes = {"counter": "_total", "info": "_info"}
    return {
        family.name + suffixes.get(family.type, ""): family
        for family in REGISTRY.collect()
        if family.name.startswith("coronet_")
    }


def expressions() -> Iterator[tuple[str, str]]:
    """Yield the expressions of the dashboard and of the alerts, with the title of the panel or alert."""
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])
    yield from ((rule["alert"], rule["expr"]) for rule in alerts())


def alerts() -> list[dict[str, Any]]:
    """Return the alert rules."""
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


@pytest.mark.parametrize(("title", "expression"), list(expressions()))
def test_expressions_use_metrics_and_labels_that_exist(title: str, expression: str) -> None:
    known = families()
    names = re.findall(r"\bcoronet_\w+", expression)
    assert names or re.search(r"\b(process|node)_\w+", expression), title
    for name in names:
        family = known[re.sub(r"_(bucket|count|sum)$", "", name)]
        assert (family.type == "histogram") is (re.search(r"_(bucket|count|sum)$", name) is not None), name
    for name, condition in re.findall(r"\b(coronet_\w+)\{([^}]*)\}", expression):
        label, values = re.findall(r"(\w+)(?:=|=~|!=|!~)\"([^\"]*)\"", condition)[0]
        text = known[name].documentation
        assert label in label_names(name), name
        assert all(re.search(rf"\b{value}\b", text) for value in values.split("|")), text


def label_names(name: str) -> tuple[str, ...]:
    """Return the labels of a metric."""
    own = next(each for each in vars(metrics).values() if getattr(each, "_name", None) == name.removesuffix("_total"))
    return tuple(own._labelnames)


def test_names_follow_the_conventions_of_prometheus() -> None:
    for name, family in families().items():
        assert re.fullmatch(r"coronet(_[a-z]+)+", name), name
        assert not name.removesuffix("_total").endswith(NOT_BASE_UNITS), name
        assert family.documentation.endswith("."), name
        assert family.documentation[0].isupper() or family.documentation[0].isdigit(), name
        if family.type == "histogram":
            assert name.endswith(UNITS), name
        if family.type == "gauge":
            assert not name.endswith("_total"), name


def test_metrics_have_only_allowed_label_names() -> None:
    allowed = {"outcome", "state", "network", "role", "kind", "route", "level", "constraint", "about", "source", "why"}
    for each in vars(metrics).values():
        assert set(getattr(each, "_labelnames", ())) <= allowed | {"way", "reason"}


def test_every_alert_has_its_section_in_the_runbook() -> None:
    headings = re.findall(r"^### (\w+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(rule["alert"] for rule in alerts())
    for rule in alerts():
        annotations, labels = rule["annotations"], rule["labels"]
        assert annotations["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert annotations["summary"].endswith(".")
        assert labels["severity"] in ("critical", "warning")
        assert rule["for"]


def table() -> str:
    """Return the table of all metrics for the guide."""
    rows = ["| Metric | Type | Meaning |", "|---|---|---|"]
    for name, family in sorted(families().items()):
        labels = ", ".join(label_names(name)) if family.type != "info" else ""
        shown = f"`{name}`" + (f" by `{labels}`" if labels else "")
        rows.append(f"| {shown} | {family.type} | {family.documentation} |")
    return "\n".join(rows) + "\n"


def test_the_guide_lists_all_metrics() -> None:
    """``python -m tests.unit.observability.test_metrics`` writes the table."""
    text = GUIDE.read_text(encoding="utf-8")
    assert text.partition(TABLE_BEGINS)[2].partition(TABLE_ENDS)[0] == table()


def test_a_gauge_is_the_sum_of_its_shares() -> None:
    gauge = Gauge("of_two_nodes", "A gauge.", ["kind"], registry=None)
    first, second = GaugeShare(gauge), GaugeShare(gauge)
    first.set({"a": 2, "b": 1})
    second.set({"a": 3})
    first.set({"a": 1, "c": 4})
    values = {sample.labels["kind"]: sample.value for family in gauge.collect() for sample in family.samples}
    assert values == {"a": 4, "b": 0, "c": 4}


if __name__ == "__main__":
    before, _, rest = GUIDE.read_text(encoding="utf-8").partition(TABLE_BEGINS)
    GUIDE.write_text(f"{before}{TABLE_BEGINS}{table()}{TABLE_ENDS}{rest.partition(TABLE_ENDS)[2]}", encoding="utf-8")
