"""The chart, rendered by the real helm."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import binaries
from tests.support.copies import copied

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "tailbound"
RELEASE = "tailbound"
NAMESPACE = "tailbound-system"

Object = dict[str, Any]


class HelmError(AssertionError):
    """helm refused; the message is what it said."""


def helm(*arguments: str | Path) -> str:
    """Run helm without a cluster. Raises HelmError with its words."""
    command = [binaries.program("helm"), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    if result.returncode:
        raise HelmError(result.stderr)
    return result.stdout


def documents(text: str) -> list[Object]:
    """The objects of a YAML text. libyaml reads the CRDs ten times as fast as the loader in Python."""
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def template(*settings: str) -> list[Object]:
    """Every object of the chart under these `--set` settings; image.registry is localhost by default."""
    return copied(_rendered(settings))


@cache
def _rendered(settings: tuple[str, ...]) -> list[Object]:
    """The objects under these settings, which many tests share."""
    arguments = [part for setting in ("image.registry=localhost", *settings) for part in ("--set", setting)]
    return documents(helm("template", RELEASE, CHART, "--namespace", NAMESPACE, *arguments))


def named(objects: list[Object], kind: str, name: str) -> Object:
    """The one object of this kind and name."""
    found = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} objects are {kind} {name}"
    return found[0]


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    """Every object of this kind."""
    return [each for each in objects if each["kind"] == kind]


def containers(pod: Object) -> list[Object]:
    """Every container of a pod spec."""
    return [*pod.get("initContainers", []), *pod["containers"]]


def pod_of(objects: list[Object], component: str) -> Object:
    """The pod spec of one Deployment."""
    spec: Object = named(objects, "Deployment", f"tailbound-{component}")["spec"]["template"]["spec"]
    return spec


def env_of(container: Object) -> dict[str, str | None]:
    """The plain environment of a container."""
    return {variable["name"]: variable.get("value") for variable in container["env"]}
