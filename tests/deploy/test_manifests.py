"""What a team's machines are told: compose.yaml by Docker Compose's parser, and manifests by Kubernetes' schemas."""

import argparse
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from inference.serving.triton_installation import IMPORT_ROOT
from midtoken.cli import build_parser

_DEPLOY = IMPORT_ROOT / "deploy"
_COMPOSE = IMPORT_ROOT / "build/docker-compose"
_MANIFESTS = sorted((_DEPLOY / "kubernetes").glob("*.yaml"))
_SECRETS = ("keys", "server.pem", "gateway.pem", "ca.pem", "metrics_key")


def _read_manifests() -> list[dict[str, Any]]:
    return [each for path in _MANIFESTS for each in yaml.safe_load_all(path.read_text())]


def _read_arguments(command: list[str]) -> argparse.Namespace:
    """Parses what is added to the command of the Dockerfile, as midtoken does."""
    return build_parser().parse_args(["serve", *command])


@pytest.mark.skipif(not _COMPOSE.exists(), reason="there is no Docker Compose here: make tools")
def test_compose_starts_two_servers_with_keys_behind_a_gateway(tmp_path: Path) -> None:
    shutil.copytree(_DEPLOY, tmp_path / "deploy")
    command = [str(_COMPOSE), "-f", str(tmp_path / "deploy/compose.yaml"), "config", "--format=json"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    found = json.loads(checked.stdout)
    files = [Path(each["file"]) for kind in ("configs", "secrets") for each in found[kind].values() if "file" in each]
    assert {each.name for each in files if each.parent.name == "secrets"} == set(_SECRETS)
    assert [each for each in files if each.parent.name != "secrets" and not each.exists()] == []
    servers = [name for name in found["services"] if name.startswith("midtoken-")]
    assert set(re.findall(r"server \w+ ([\w-]+):", (_DEPLOY / "servers.cfg").read_text())) == set(servers)
    assert all(f'"{name}:8002"' in (_DEPLOY / "prometheus.yml").read_text() for name in servers)
    for name in servers:
        assert "ports" not in found["services"][name], "only the gateway reaches a server"
        assert _read_arguments(found["services"][name]["command"]).keys


@pytest.mark.parametrize("path", _MANIFESTS, ids=lambda path: path.name)
def test_kubernetes_knows_every_field_of_a_manifest(path: Path) -> None:
    for manifest in yaml.safe_load_all(path.read_text()):
        kubernetes_validate.validate(manifest, "1.33", strict=True)


def test_pods_get_what_they_name_and_nothing_starts_as_root() -> None:
    manifests = _read_manifests()
    deployments = {each["metadata"]["name"]: each["spec"] for each in manifests if each["kind"] == "Deployment"}
    for each in manifests:
        if each["kind"] in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
            selector = each["spec"].get("selector") or each["spec"]["podSelector"]
            labels = selector.get("matchLabels", selector)
            assert labels == deployments[each["metadata"]["name"]]["template"]["metadata"]["labels"]
    for spec in deployments.values():
        pod = spec["template"]["spec"]
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
        drained_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
        assert drained_s < pod["terminationGracePeriodSeconds"] - 15
    assert _read_arguments(deployments["midtoken"]["template"]["spec"]["containers"][0]["args"]).keys


def test_the_kustomization_has_every_file() -> None:
    kustomization = yaml.safe_load((_DEPLOY / "kustomization.yaml").read_text())
    assert {_DEPLOY / each for each in kustomization["resources"]} == set(_MANIFESTS)
    [generated] = kustomization["configMapGenerator"]
    volumes = [
        pod
        for each in _read_manifests()
        if each["kind"] == "Deployment"
        for pod in each["spec"]["template"]["spec"]["volumes"]
    ]
    assert generated["name"] in {each["configMap"]["name"] for each in volumes if "configMap" in each}
    assert all((_DEPLOY / each).exists() for each in generated["files"])
