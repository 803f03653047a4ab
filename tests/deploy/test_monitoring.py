"""The alerts and the dashboard ask for metrics that there are, and Prometheus's own tool takes them."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families

from inference.engine.metrics import EngineLoad, Metrics
from inference.serving.operator_port import write_readiness
from inference.serving.triton_installation import IMPORT_ROOT

_DEPLOY, _PROMTOOL = IMPORT_ROOT / "deploy", IMPORT_ROOT / "build" / "promtool"
_ALERTS = (_DEPLOY / "alerts.yml").read_text()
_DASHBOARD = json.loads((_DEPLOY / "grafana.json").read_text())
_QUERIES = [target["expr"] for panel in _DASHBOARD["panels"] for target in panel["targets"]]
_SERIES = re.compile(r"(\bmidtoken_\w+)(?:\{([^}]*)\})?")
needs_promtool = pytest.mark.skipif(not _PROMTOOL.exists(), reason="make build/promtool fetches it")


class _Engine:
    load = EngineLoad(0, 0, {"idle": 0, "logits": 0, "limit": 0})

    def measure_heartbeat_ms(self) -> float:
        return 0.0


def _list_samples() -> dict[str, set[str]]:
    """The metrics of a server, with the values of their labels."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(write_readiness("") + Metrics(_Engine()).write()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels.values())
    return found


def test_alerts_dashboard_and_page_name_metrics_that_there_are_with_labels_that_they_have() -> None:
    samples, page = _list_samples(), (IMPORT_ROOT / "docs" / "operating.md").read_text()
    assert len(_QUERIES) > 20
    for text in (_ALERTS, *_QUERIES):
        for name, labels in _SERIES.findall(text):
            assert name in samples
            values = {
                each
                for group in re.findall(r'(?:outcome|reason|kind)=~?"([^"]*)"', labels)
                for each in group.split("|")
            }
            assert values <= samples[name], text
    tabled = set(re.findall(r"`(midtoken_\w+)`", page))
    families = {re.sub("_(bucket|count|sum)$", "", name) for name in samples if "_process_" not in name}
    assert families <= tabled <= families | samples.keys()


def test_grafana_knows_every_field_of_the_dashboard() -> None:
    register_default_plugins()
    written = json.loads(JSONEncoder().encode(Dashboard.from_json(_DASHBOARD)))
    lost: list[str] = []

    def compare(own: Any, read: Any, path: str) -> None:
        if isinstance(own, dict) and isinstance(read, dict):
            for name in own:
                compare(own[name], read.get(name), f"{path}.{name}")
        elif isinstance(own, list) and isinstance(read, list) and len(own) == len(read):
            for number, pair in enumerate(zip(own, read, strict=True)):
                compare(*pair, f"{path}.{number}")
        elif own != read:
            lost.append(f"{path} is {read}")

    compare(_DASHBOARD, written, "dashboard")
    assert lost == []


def test_the_page_says_what_to_do_for_each_alert() -> None:
    page = (IMPORT_ROOT / "docs" / "operating.md").read_text()
    alerts = re.findall(r"alert: (\w+)", _ALERTS)
    assert re.findall(r"^### (Midtoken\w+)", page, re.MULTILINE) == alerts
    assert len(alerts) <= 8


@needs_promtool
def test_prometheus_takes_the_alerts_and_each_fires_in_its_own_situation_only(tmp_path: Path) -> None:
    subprocess.run([_PROMTOOL, "check", "rules", _DEPLOY / "alerts.yml"], check=True, capture_output=True)
    situations = (IMPORT_ROOT / "tests" / "deploy" / "alerts_test.yml").read_text()
    (tmp_path / "tests.yml").write_text(situations.replace("[ALERTS]", f"[{_DEPLOY / 'alerts.yml'}]"))
    done = subprocess.run([_PROMTOOL, "test", "rules", tmp_path / "tests.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_prometheus_reads_each_query_of_the_dashboard(tmp_path: Path) -> None:
    known = {"$__rate_interval": "5m", "$instance": ".*"}
    queries = [re.sub("|".join(map(re.escape, known)), lambda found: known[found[0]], each) for each in _QUERIES]
    rules = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(queries)]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run([_PROMTOOL, "check", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
