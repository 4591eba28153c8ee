"""Writes the CustomResourceDefinitions: `python -m tailbound.api.crdgen [--check] DIRECTORY`.

With --check nothing is written; the exit status is 1 if a file is stale, missing or not ours, and says which.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tailbound.api.crdgen_schema import structural
from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.hosts import HostGrant
from tailbound.api.inferenceservice import InferenceService
from tailbound.api.names import GROUP, VERSION
from tailbound.api.schema import Model
from tailbound.api.servingruntime import ClusterServingRuntime, ServingRuntime

_HEADER: Final = "# Written by python -m tailbound.api.crdgen from the models in tailbound/api; edit those.\n"
_API_VERSION: Final = {
    "type": "string",
    "description": "Version of the API that this object is written in.",
}
_KIND: Final = {"type": "string", "description": "Kind of this object."}


@dataclass(frozen=True)
class Column:
    """One column of `kubectl get`; `wide` ones appear with -o wide only."""

    name: str
    json_path: str
    type: str = "string"
    wide: bool = False
    description: str = ""

    def to_crd(self) -> dict[str, Any]:
        """The entry of additionalPrinterColumns."""
        entry: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.json_path}
        if self.description:
            entry["description"] = self.description
        if self.wide:
            entry["priority"] = 1
        return entry


_AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True)
class KindNames:
    """What a kind is called and how it is shown."""

    model: type[Model]
    plural: str
    short_names: tuple[str, ...]
    scope: str
    columns: tuple[Column, ...]
    subresources: Mapping[str, Any] | None = None

    @property
    def kind(self) -> str:
        """The kind's name."""
        return self.model.__name__

    @property
    def crd_name(self) -> str:
        """Name of the CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"


def _ready(field: str) -> str:
    return f'.status.conditions[?(@.type=="Ready")].{field}'


_RUNTIME_COLUMNS: Final = (
    Column("Format", ".spec.formats[0].name", description="The first of its formats."),
    Column("Priority", ".spec.priority", "integer"),
    Column("Image", ".spec.server.image"),
    _AGE,
)

RESOURCES: Final = (
    KindNames(
        InferenceService,
        "inferenceservices",
        ("infs",),
        "Namespaced",
        (
            Column("Ready", _ready("status"), description="Whether the revision of the newest spec serves."),
            Column("Reason", _ready("reason")),
            Column("URL", ".status.url"),
            Column("P99", ".spec.sla.latency.p99", description="The latency target."),
            Column(
                "Replicas",
                ".status.servingPods",
                description="Ready and desired pods of the revisions that get requests.",
            ),
            Column("Rollout", ".status.rollout.state", description="State of the last rollout."),
            Column("Runtime", ".spec.runtime.name", wide=True),
            Column("Revision", ".status.stable.revision", wide=True),
            Column("Canary", ".status.canary.revision", wide=True),
            Column("Weight", ".status.canary.weight", "integer", wide=True),
            Column("Cost", ".status.hardware.costPerHour", wide=True, description="Of its pods, per hour."),
            Column("Message", _ready("message"), wide=True),
            _AGE,
        ),
        {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.scaling.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
    ),
    KindNames(
        HardwareClass,
        "hardwareclasses",
        ("hwc",),
        "Cluster",
        (
            Column("Default", r".metadata.annotations.tailbound\.dev/is-default-class"),
            Column("Device", ".spec.resources[0].name", description="The first of its device resources."),
            Column("Count", ".spec.resources[0].count", "integer"),
            Column("Nodes", ".status.nodes", "integer", description="Nodes that its pods can run on."),
            Column("Devices", ".status.devices", "integer", description="Devices of these nodes."),
            Column("Free", ".status.free", "integer", description="Devices without a pod of Tailbound."),
            Column("Used By", ".status.services", "integer", description="Services with pods of it."),
            Column("Waiting", ".status.waiting", "integer", description="Pods without a node."),
            Column("Price", ".spec.price.perHour", description="Of one unit (spec.price.unit) for an hour."),
            _AGE,
        ),
        {"status": {}},
    ),
    KindNames(
        HostGrant,
        "hostgrants",
        ("hgr",),
        "Cluster",
        (
            Column("Hosts", ".spec.hosts"),
            Column("Namespaces", ".spec.namespaces"),
            _AGE,
        ),
    ),
    KindNames(ServingRuntime, "servingruntimes", ("srt",), "Namespaced", _RUNTIME_COLUMNS),
    KindNames(ClusterServingRuntime, "clusterservingruntimes", ("csrt",), "Cluster", _RUNTIME_COLUMNS),
)


def crd(resource: KindNames) -> dict[str, Any]:
    """The CustomResourceDefinition of this kind."""
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [column.to_crd() for column in resource.columns],
        "schema": {"openAPIV3Schema": _root(structural(resource.model))},
    }
    if resource.subresources is not None:
        version["subresources"] = dict(resource.subresources)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.crd_name},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": list(resource.short_names),
                "categories": ["tailbound"],
            },
            "scope": resource.scope,
            "versions": [version],
        },
    }


def _root(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with what every object has besides its own fields."""
    properties = {"apiVersion": dict(_API_VERSION), "kind": dict(_KIND), **schema["properties"]}
    if "status" in properties:
        properties["status"] = _without_defaults(properties["status"])
    return {**schema, "properties": properties}


def _without_defaults(schema: Any) -> Any:
    """A status holds what was observed: the API server must add nothing to it."""
    if isinstance(schema, dict):
        return {key: _without_defaults(child) for key, child in schema.items() if key != "default"}
    return [_without_defaults(child) for child in schema] if isinstance(schema, list) else schema


class _Plain(yaml.SafeDumper):
    """YAML without anchors, which people cannot read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render(resource: KindNames) -> str:
    """The file's text."""
    return _HEADER + yaml.dump(crd(resource), Dumper=_Plain, sort_keys=False, width=110, allow_unicode=True)


def files(directory: Path) -> dict[Path, str]:
    """What the directory must hold."""
    return {directory / f"{GROUP}_{resource.plural}.yaml": render(resource) for resource in RESOURCES}


def stale(directory: Path) -> list[str]:
    """What is wrong with the directory, in words; empty if it is up to date."""
    wanted = files(directory)
    found = set(directory.glob("*.yaml"))
    problems = [f"{path} is not generated from a model: remove it" for path in sorted(found - set(wanted))]
    for path, text in wanted.items():
        if path not in found:
            problems.append(f"{path} is missing")
        elif path.read_text(encoding="utf-8") != text:
            problems.append(f"{path} differs from its model")
    return problems


def main(arguments: list[str] | None = None) -> int:
    """Write the files or check them; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tailbound.api.crdgen", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is stale")
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    options = parser.parse_args(arguments)
    if not options.check:
        options.directory.mkdir(parents=True, exist_ok=True)
        for path, text in files(options.directory).items():
            path.write_text(text, encoding="utf-8")
        return 0
    problems = stale(options.directory)
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    if problems:
        sys.stderr.write(f"run: python -m tailbound.api.crdgen {options.directory}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
