"""Bringing the cluster under test up and Tailbound into it, once per run; and what Helm does to it later."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from e2e.cluster import binaries
from e2e.cluster.cluster import Cluster
from e2e.cluster.images import OPERATOR_IMAGE, RUNTIME_IMAGE
from e2e.cluster.layout import DEFAULT_NAME, Layout
from e2e.cluster.own import OwnCluster
from e2e.demo.setting import load_images
from e2e.scenarios.library import pods
from e2e.scenarios.library.api import Api
from e2e.scenarios.library.audit import AuditLog
from e2e.scenarios.library.scene import GATEWAY, OPERATOR, World, scale
from e2e.scenarios.library.store import Store
from e2e.scenarios.library.tools import Helm, Kubectl
from e2e.scenarios.library.traffic import Client
from e2e.scenarios.library.waiting import SYSTEM

RELEASE: Final = "tailbound"
REPOSITORY: Final = Path(__file__).parents[3]
CHART: Final = REPOSITORY / "charts" / "tailbound"
VALUES: Final = Path(__file__).parents[1] / "values.yaml"
# Name of our own cluster, to have one beside that of the demo.
NAME_VARIABLE: Final = "TAILBOUND_CLUSTER"
# Where the images of a cluster that KUBECONFIG names come from; our own cluster has them loaded.
REGISTRY_VARIABLE: Final = "TAILBOUND_IMAGE_REGISTRY"
LOCAL_REGISTRY: Final = "localhost"
TAG: Final = "e2e"
PROMETHEUS_IMAGE: Final = "tailbound-prometheus"
ENGINES_IMAGE: Final = "tailbound-runtime-engines"
# Of the last one the image has no library.
ENGINES: Final = ("xgboost", "lightgbm", "mlx", "jax")
# The same images by another name: what a new release looks like.
NEXT_TAG: Final = "e2e-next"
TIMEOUT: Final = "180s"
HELM_SECONDS: Final = 240


def installed_world(scratch: Path, shared: Path) -> World:
    """The cluster with Tailbound and the helper pods in it.

    `scratch` is a folder of this process alone. Processes that give the same folder `shared` install once.
    """
    cluster = Cluster.current() if os.environ.get("KUBECONFIG") else own_cluster()
    with _once(shared) as first:
        if first:
            tag = _prepare(cluster) if isinstance(cluster, OwnCluster) else TAG
            (shared / "tag").write_text(tag)
        world = connect(cluster, scratch, (shared / "tag").read_text())
        if first:
            upgrade(world, world.tag)
            contents = cluster.image_contents() if isinstance(cluster, OwnCluster) else {}
            pods.deploy(world.api, registry(), TAG, contents)
    return world


def _prepare(cluster: OwnCluster) -> str:
    """Bring the cluster up with today's images in it; the tag that names their content."""
    cluster.up()
    tag = load_images(cluster)
    for image in (OPERATOR_IMAGE, RUNTIME_IMAGE):
        cluster.tag_image(image, f"{image.rpartition(':')[0]}:{NEXT_TAG}")
    return tag


def connect(cluster: Cluster, scratch: Path, tag: str) -> World:
    """The world of a cluster in which everything is there already."""
    kubectl = Kubectl(binaries.program("kubectl"), cluster.kubeconfig)
    api = Api(cluster.kubeconfig, scratch / "discovery.json")
    return World(
        api=api,
        kubectl=kubectl,
        helm=Helm(binaries.program("helm"), cluster.kubeconfig),
        store=Store(api, pods.NAMESPACE),
        client=Client(api, kubectl, pods.NAMESPACE),
        audit=AuditLog(cluster.audit_log) if isinstance(cluster, OwnCluster) else None,
        tag=tag,
    )


def registry() -> str:
    """Registry and folder of the images."""
    return os.environ.get(REGISTRY_VARIABLE, LOCAL_REGISTRY)


def upgrade(world: World, tag: str) -> None:
    """Install, or upgrade to this tag; returns when operator and gateways are ready."""
    world.helm.run(
        *("upgrade", "--install", RELEASE, str(CHART), "-n", SYSTEM, "--create-namespace"),
        *("-f", str(VALUES), "--set", f"image.registry={registry()}"),
        # The tag is a digest, which may have digits only.
        *("--set-string", f"image.tag={tag}"),
        *("--set", f"prometheus.image={registry()}/{PROMETHEUS_IMAGE}:{TAG}"),
        *(f"--set=engines.{name}.image={registry()}/{ENGINES_IMAGE}:{TAG}" for name in ENGINES),
        *("--wait", "--timeout", TIMEOUT),
        timeout_seconds=HELM_SECONDS,
    )
    for name in (OPERATOR, GATEWAY):
        scale(world, name, 2)


def uninstall(world: World) -> None:
    """Uninstall; returns when what Helm removes is gone."""
    world.helm.run(
        "uninstall", RELEASE, "-n", SYSTEM, "--wait", "--timeout", TIMEOUT, timeout_seconds=HELM_SECONDS
    )


def own_cluster() -> OwnCluster:
    """The cluster of our own, up or not; scenarios that ask for it are marked needs_own_cluster."""
    return OwnCluster(Layout(os.environ.get(NAME_VARIABLE, DEFAULT_NAME)))


@contextmanager
def _once(folder: Path) -> Iterator[bool]:
    """Whether nobody has left this block without an error before; one process at a time is in it."""
    done = folder / "installed"
    with (folder / "installing").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not done.exists()
        done.touch()
