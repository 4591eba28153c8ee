"""Services of servers of other projects, with what the chart's runtimes render for them."""

import copy
import hashlib
import io
import json
import pickle
import uuid
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import yaml

from e2e.cluster.building import build
from e2e.cluster.images import heavy_image
from e2e.cluster.own import OwnCluster
from e2e.images.mlserver.estimator import Line
from e2e.scenarios.library import installation
from e2e.scenarios.library.api import Object
from e2e.scenarios.library.manifests import serving_runtime
from e2e.scenarios.library.models import Model
from e2e.scenarios.library.rollouts import Rollout
from e2e.scenarios.library.scaling import BATCHING, SLA, TIMEOUT_SECONDS
from e2e.scenarios.library.scene import Scene

# An answer takes so long, and as long again for each row of its batch: one pod answers 26 requests a second.
SECONDS: Final = 0.03
_RUNTIMES: Final = installation.CHART / "files" / "runtimes"


@dataclass(frozen=True)
class Server:
    """A foreign server, and models for it."""

    name: str
    """Name of its runtime in the chart; its image is tailbound-NAME."""
    model_format: str
    model: Callable[[float], bytes]
    """Content of a model that multiplies by this number."""
    resources: Object

    def runtime(self, **changes: Any) -> Object:
        """The spec of the chart's runtime, with the image of the tests; changes replace fields."""
        image = f"{installation.registry()}/tailbound-{self.name}:{installation.TAG}"
        spec: Object = yaml.safe_load((_RUNTIMES / f"{self.name}.yaml").read_text())["spec"]
        return {**copy.deepcopy(spec), "server": {**spec["server"], "image": image}, **changes}

    def source(self, scene: Scene, slope: float) -> Object:
        """spec.model of a model in the store that multiplies by this number."""
        content = self.model(slope)
        model = Model(f"{scene.namespace}-{uuid.uuid4().hex[:6]}.{self.model_format}", content)
        uri = scene.world.store.uri(scene.world.store.put(model))
        return {"uri": uri, "format": self.model_format, "sha256": hashlib.sha256(content).hexdigest()}

    def load_heavy_image(self, cluster: OwnCluster) -> None:
        """Have the image in a cluster of our own, if it is one of e2e/images/heavy."""
        cluster.load_archives([build(heavy_image(self.name))])


class Service:
    """One service, whose runtime is one of its namespace."""

    def __init__(self, scene: Scene, server: Server, name: str, rollout: Object, spec: Object) -> None:
        self._scene, self._server = scene, server
        scene.api.apply(serving_runtime(scene.namespace, server.name, spec))
        fields = {
            "model": server.source(scene, slope=2.0),
            "batching": BATCHING,
            "resources": server.resources,
            "scaling": {"min": 1, "max": 2},
            "timeout": f"{TIMEOUT_SECONDS}s",
        }
        self.rollout = Rollout(scene, name, rollout, SLA, fields, scene.model(slope=1.0), server.name)
        self.rollout.change("first")
        scene.ready(name)

    def introduce(self, slope: float, spec: Object) -> str:
        """Edit the runtime, and the model with it; the name of the new revision."""
        self._scene.api.apply(serving_runtime(self._scene.namespace, self._server.name, spec))
        self.rollout.spec["model"] = self._server.source(self._scene, slope)
        return self.rollout.introduce("second")

    def multiplies_by(self) -> float:
        """The number by which the model that answers multiplies."""
        answer = self._scene.world.client.infer(self._scene.namespace, self.rollout.name, [1.0])
        assert answer.status == 200, answer
        (value,) = answer.json()["outputs"][0]["data"]
        return float(value)


def _pickled(slope: float) -> bytes:
    return pickle.dumps(Line(slope, seconds=SECONDS, seconds_per_row=SECONDS))


# TorchServe reads requests of the Open Inference Protocol as any others: the handler makes sense of them.
_HANDLER: Final = """
import json, time
import torch

def handle(data, context):
    if data is None:
        return None
    time.sleep({seconds} * (1 + len(data)))
    bodies = [each.get("body") or each.get("data") for each in data]
    bodies = [each if isinstance(each, dict) else json.loads(each) for each in bodies]
    rows = [torch.tensor(each["inputs"][0]["data"]) * {slope} for each in bodies]
    return [{{"outputs": [{{"name": "y", "data": row.flatten().tolist()}}]}} for row in rows]
"""


def _archive(slope: float) -> bytes:
    model = {"modelName": "line", "handler": "handler.py", "modelVersion": "1.0"}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps({"runtime": "python", "model": model}))
        archive.writestr("handler.py", _HANDLER.format(seconds=SECONDS, slope=slope))
    return content.getvalue()


MLSERVER: Final = Server("mlserver", "sklearn", _pickled, {"cpu": "300m", "memory": "400Mi"})
TORCHSERVE: Final = Server("torchserve", "mar", _archive, {"cpu": "300m", "memory": "1Gi"})
