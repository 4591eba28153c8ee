"""Services of a foreign server: MLServer, with what the chart's runtime renders for it."""

import copy
import hashlib
import pickle
import uuid
from typing import Any, Final

import yaml

from e2e.images.mlserver.estimator import Line
from e2e.scenarios.library import installation
from e2e.scenarios.library.api import Object
from e2e.scenarios.library.manifests import serving_runtime
from e2e.scenarios.library.models import Model
from e2e.scenarios.library.rollouts import Rollout
from e2e.scenarios.library.scaling import BATCHING, SLA, TIMEOUT_SECONDS
from e2e.scenarios.library.scene import Scene

RUNTIME: Final = "mlserver"
IMAGE: Final = "tailbound-mlserver"
FORMAT: Final = "sklearn"
# An answer takes so long, and as long again for each row of its batch: one pod answers 26 requests a second.
SECONDS: Final = 0.03
RESOURCES: Final[Object] = {"cpu": "300m", "memory": "400Mi"}
_CHART: Final = installation.CHART / "files" / "runtimes" / "mlserver.yaml"


def runtime(**changes: Any) -> Object:
    """The spec of the chart's runtime, with the image of the tests; changes replace fields."""
    image = f"{installation.registry()}/{IMAGE}:{installation.TAG}"
    spec: Object = yaml.safe_load(_CHART.read_text())["spec"]
    return {**copy.deepcopy(spec), "server": {**spec["server"], "image": image}, **changes}


def source(scene: Scene, slope: float) -> Object:
    """spec.model of a model in the store that multiplies by this number."""
    content = pickle.dumps(Line(slope, seconds=SECONDS, seconds_per_row=SECONDS))
    model = Model(f"{scene.namespace}-{uuid.uuid4().hex[:6]}.{FORMAT}", content)
    uri = scene.world.store.uri(scene.world.store.put(model))
    return {"uri": uri, "format": FORMAT, "sha256": hashlib.sha256(content).hexdigest()}


class MLServer:
    """One such service, whose runtime is one of its namespace."""

    def __init__(self, scene: Scene, name: str, rollout: Object, spec: Object) -> None:
        self._scene = scene
        scene.api.apply(serving_runtime(scene.namespace, RUNTIME, spec))
        fields = {
            "model": source(scene, slope=2.0),
            "batching": BATCHING,
            "resources": RESOURCES,
            "scaling": {"min": 1, "max": 2},
            "timeout": f"{TIMEOUT_SECONDS}s",
        }
        self.rollout = Rollout(scene, name, rollout, SLA, fields, scene.model(slope=1.0), RUNTIME)
        self.rollout.change("first")
        scene.ready(name)

    def introduce(self, slope: float, spec: Object) -> str:
        """Edit the runtime, and the model with it; the name of the new revision."""
        self._scene.api.apply(serving_runtime(self._scene.namespace, RUNTIME, spec))
        self.rollout.spec["model"] = source(self._scene, slope)
        return self.rollout.introduce("second")

    def multiplies_by(self) -> float:
        """The number by which the model that answers multiplies."""
        answer = self._scene.world.client.infer(self._scene.namespace, self.rollout.name, [1.0])
        assert answer.status == 200, answer
        (value,) = answer.json()["outputs"][0]["data"]
        return float(value)
