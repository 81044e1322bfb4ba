"""The compose stack with Prometheus and Grafana: ``make containers``."""

import json
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from tests.containers.stack import Reader, Stack, assert_confined
from tests.support.waiting import until_so

pytestmark = [pytest.mark.containers, pytest.mark.timeout(540), pytest.mark.asyncio(loop_scope="module")]

FILES = ("compose.monitoring.yaml",)


class Prometheus:
    """The running Prometheus, asked from within its container, because its port is not published."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._container = stack.name_of("prometheus")

    def get(self, path: str) -> Any:
        """Return the data of an answer of its API. Raises CalledProcessError if it answers with an error."""
        answer = self._stack.podman(
            "exec", self._container, "wget", "-q", "-O-", f"http://127.0.0.1:9090/api/v1/{path}"
        )
        return json.loads(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an expression. Raises CalledProcessError if it is not valid."""
        return list(self.get(f"query?query={quote(expression)}")["result"])

    def targets(self) -> dict[str, str]:
        """Return the health of each target, by its address."""
        targets = self.get("targets?state=active")["activeTargets"]
        return {each["labels"]["instance"]: each["health"] for each in targets}

    def alerts(self) -> dict[str, str]:
        """Return the state of each alert that is pending or firing."""
        return {each["labels"]["alertname"]: each["state"] for each in self.get("alerts")["alerts"]}


@pytest.fixture(scope="module")
def prometheus(stack: Stack) -> Prometheus:
    return Prometheus(stack)


def dashboard(stack: Stack) -> dict[str, Any]:
    """Return the dashboard from where compose mounts it and Grafana is told to look."""
    mounts = dict(each.split(":")[:2] for each in grafana(stack)["volumes"])
    by_target = {target: stack.folder / source for source, target in mounts.items()}
    provisioning = by_target["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/coronet.yaml").read_text(encoding="utf-8"))["providers"]
    found = [path for target, path in by_target.items() if target.startswith(f"{provider['options']['path']}/")]
    (path,) = found
    return dict(json.loads(path.read_text(encoding="utf-8")))


def grafana(stack: Stack) -> dict[str, Any]:
    """Return the service as its file describes it, also where its image cannot be had."""
    assert stack.folder.exists()
    source = Path(__file__).resolve().parents[2] / "compose/compose.monitoring.yaml"
    return dict(yaml.safe_load(source.read_text(encoding="utf-8"))["services"]["grafana"])


def expressions(stack: Stack) -> list[tuple[str, str]]:
    """Return the title and each expression of the dashboard's panels."""
    return [(panel["title"], target["expr"]) for panel in dashboard(stack)["panels"] for target in panel["targets"]]


async def test_all_containers_are_healthy_confined_and_within_their_limits(stack: Stack) -> None:
    assert_confined(stack)


async def test_prometheus_scrapes_every_program(stack: Stack, prometheus: Prometheus) -> None:
    began_s = time.monotonic()
    programs = {"worker": 9464, "bot": 9464, "console": 8080}
    counts = {name: stack.services[name]["deploy"].get("replicas", 1) for name in programs}

    def are_read() -> bool:
        targets = prometheus.targets()
        ports = sorted(address.rpartition(":")[2] for address in targets)
        wanted = sorted(str(port) for name, port in programs.items() for _ in range(counts[name]))
        return ports == wanted and set(targets.values()) == {"up"}

    await until_so(are_read, "all programs are targets, and up", within_s=60)
    stack.seconds["all targets up"] = time.monotonic() - began_s
    assert len(prometheus.query("coronet_versions_info")) == sum(counts.values())


async def test_the_rules_are_loaded_and_no_alert_fires_in_a_healthy_stack(
    stack: Stack, reader: Reader, prometheus: Prometheus
) -> None:
    await reader.deliver()
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    written = yaml.safe_load((stack.folder / "prometheus/alerts.yml").read_text(encoding="utf-8"))
    assert [rule["name"] for rule in rules] == [rule["alert"] for rule in written["groups"][0]["rules"]]

    def are_evaluated() -> bool:
        found = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        return all(rule["health"] == "ok" for rule in found)

    await until_so(are_evaluated, "all rules have been evaluated", within_s=60)
    assert "firing" not in prometheus.alerts().values()


async def test_every_dashboard_panel_queries_existing_metrics(stack: Stack, prometheus: Prometheus) -> None:
    known = prometheus.get("metadata")
    for title, expression in expressions(stack):
        for name in re.findall(r"\b(?:coronet|process)_\w+", expression):
            families = {name, re.sub(r"_(bucket|count|sum|total)$", "", name)}
            assert families & known.keys(), f"{title}: no program has {name}"

    def are_most_shown() -> bool:
        shown = [expression for _, expression in expressions(stack) if prometheus.query(expression)]
        return len(shown) > len(expressions(stack)) / 2

    # Rates need two samples after the first entry.
    await until_so(are_most_shown, "most panels have data", within_s=60)


async def test_the_data_source_of_grafana_is_prometheus(stack: Stack) -> None:
    provisioning = stack.folder / "grafana/provisioning"
    source = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text(encoding="utf-8"))
    (datasource,) = source["datasources"]
    assert datasource["url"] == "http://prometheus:9090"
    assert set(grafana(stack)["networks"]) & set(stack.services["prometheus"]["networks"])
    (variable,) = dashboard(stack)["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", datasource["type"])
    assert {panel["datasource"]["uid"] for panel in dashboard(stack)["panels"]} == {f"${{{variable['name']}}}"}


async def test_grafana_shows_the_dashboard(stack: Stack) -> None:
    if "grafana" not in stack.services:
        pytest.skip("the image of Grafana cannot be pulled, and no package of Debian, PyPI or npm has Grafana")
    password = (stack.folder / "secrets/grafana_admin_password").read_text(encoding="utf-8").strip()
    found = stack.podman(
        *("exec", stack.name_of("grafana"), "curl", "-fsS", "-u", f"admin:{password}"),
        "http://127.0.0.1:3000/api/dashboards/uid/coronet",
    )
    assert json.loads(found)["dashboard"]["title"] == "Coronet"


async def test_an_alert_fires_when_the_workers_are_stopped_and_ends_when_they_are_back(
    stack: Stack, prometheus: Prometheus, reader: Reader
) -> None:
    """With the shipped intervals: the rule waits for two minutes."""
    workers = [each["Name"] for each in stack.containers("worker")]
    began_s = time.monotonic()
    stack.podman("stop", "--time", "10", *workers)

    await until_so(lambda: prometheus.alerts().get("CoronetNoWorkers") == "firing", "the alert is firing", within_s=240)
    stack.seconds["alert"] = time.monotonic() - began_s
    began_s = time.monotonic()
    stack.podman("start", *workers)
    await until_so(lambda: "CoronetNoWorkers" not in prometheus.alerts(), "the alert has ended", within_s=120)
    stack.seconds["end of the alert"] = time.monotonic() - began_s
    await reader.deliver()
    assert not reader.verdict().broken
