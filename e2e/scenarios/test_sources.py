"""Models from object stores and volumes, as files and as folders, with credentials that are for one host."""

import hashlib
from pathlib import Path

from e2e.scenarios.library import model_image, models, volumes
from e2e.scenarios.library.api import conditions
from e2e.scenarios.library.installation import TAG, registry
from e2e.scenarios.library.models import Model
from e2e.scenarios.library.scene import Scene, serving
from e2e.scenarios.library.traffic import VALUES
from e2e.scenarios.library.waiting import Unmet


def _secret(scene: Scene, name: str, **values: str) -> None:
    scene.api.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": scene.namespace},
            "stringData": values,
        }
    )


def _answers(scene: Scene, name: str, expected: list[float]) -> None:
    answer = scene.world.client.infer(scene.namespace, name)
    assert answer.status == 200, answer
    assert answer.json()["outputs"][0]["data"] == expected


def test_object_store_serves_an_object_a_folder_and_an_archive_to_the_secret_that_is_for_it(
    scene: Scene, tmp_path: Path
) -> None:
    file = models.affine("object", slope=2.0)
    folder = volumes.folder_with_weights(tmp_path, slope=3.0)
    objects = {"models/one.onnx": file.content, **{f"models/v/{name}": data for name, data in folder.items()}}
    archive = volumes.packed(folder)
    objects["models/packed.tar.gz"] = archive
    objects["models/v/training/log.txt"] = b"which is no part of the model"
    volumes.s3_server(scene.api, registry(), TAG, objects)
    _secret(scene, "reader", hosts=volumes.S3_HOST, **volumes.S3_KEY)
    _secret(scene, "for-another-host", hosts="models.example.com", **volumes.S3_KEY)
    source = {"format": "onnx", "s3": {"endpoint": volumes.S3_ENDPOINT}}
    of_file = {**source, "uri": "s3://models/one.onnx", "sha256": file.sha256}
    of_folder = {**source, "uri": "s3://models/v", "sha256": volumes.folder_digest(folder)}
    of_archive = {**source, "uri": "s3://models/packed.tar.gz", "sha256": hashlib.sha256(archive).hexdigest()}
    scene.apply("packed", file, model={**of_archive, "archive": "tar", "secretRef": {"name": "reader"}})
    of_folder["files"] = ["*.onnx", "*.bin"]
    scene.apply("object", file, model={**of_file, "secretRef": {"name": "reader"}})
    scene.apply("folder", file, model={**of_folder, "secretRef": {"name": "reader"}})
    scene.apply("refused", file, model={**of_file, "secretRef": {"name": "for-another-host"}})
    scene.ready("object")
    _answers(scene, "object", file.expected(VALUES))
    scene.ready("folder")
    _answers(scene, "folder", [3.0 * value for value in VALUES])
    scene.ready("packed")
    _answers(scene, "packed", [3.0 * value for value in VALUES])
    scene.condition("refused", "ModelVerified", "False", "CredentialsRefused", volumes.S3_HOST)


def test_claim_serves_a_file_and_a_folder_without_a_copy(scene: Scene, tmp_path: Path) -> None:
    file = models.affine("on-a-claim", slope=5.0)
    folder = volumes.folder_with_weights(tmp_path, slope=7.0)
    files = {"one.onnx": file.content, **{f"v/1/{name}": data for name, data in folder.items()}}
    volumes.claim(scene.api, scene.namespace, "models", registry(), TAG, files)
    try:
        _serve_from_claim(scene, file, folder)
    finally:
        scene.api.delete("PersistentVolume", f"{scene.namespace}-models")


def _serve_from_claim(scene: Scene, file: Model, folder: volumes.Files) -> None:
    digest = volumes.folder_digest(folder)
    of_file = {"uri": "pvc://models/one.onnx", "format": "onnx", "sha256": file.sha256}
    of_folder = {"uri": "pvc://models/v", "format": "onnx", "path": "1/model.onnx"}
    scene.apply("file", file, model=of_file)
    scene.apply(
        "folder",
        file,
        model={
            **of_folder,
            "sha256": volumes.folder_digest({f"1/{name}": data for name, data in folder.items()}),
        },
    )
    scene.apply("other-bytes", file, model={**of_folder, "uri": "pvc://models/v/1/", "sha256": digest[::-1]})
    scene.ready("file")
    _answers(scene, "file", file.expected(VALUES))
    scene.ready("folder")
    _answers(scene, "folder", [7.0 * value for value in VALUES])
    scene.condition("other-bytes", "ModelVerified", "False", "DigestMismatch", digest)


def test_image_of_a_registry_is_pulled_once_and_its_digest_is_the_pin(scene: Scene, tmp_path: Path) -> None:
    file, folder = models.affine("in-an-image", slope=6.0), volumes.folder_with_weights(tmp_path, slope=6.0)
    image = model_image.model_image(folder)
    host = model_image.serve(scene.api, scene.namespace, f"{registry()}/tailbound-registry:{TAG}", image)
    source, absent = {"uri": image.uri(), "format": "onnx"}, f"sha256:{'0' * 64}"
    scene.apply("pulled", file, model=source)
    scene.apply("absent", file, model={**source, "uri": image.uri(absent)})
    scene.apply("verified", file, model={**source, "sha256": volumes.folder_digest(folder)})
    scene.apply("other-bytes", file, model={**source, "sha256": file.sha256})
    scene.ready("pulled")
    _answers(scene, "pulled", [6.0 * value for value in VALUES])
    scene.ready("verified")
    scene.condition("absent", "ModelVerified", "False", "SourceNotFound", f"{absent} of spec.model.uri")
    scene.condition("other-bytes", "ModelVerified", "False", "DigestMismatch", volumes.folder_digest(folder))
    scene.api.delete("Pod", host, scene.namespace)
    scene.gone("Pod", host)
    scene.apply("pulled", file, model=source, scaling={"min": 2, "max": 2})
    scene.wait("a second pod without the registry", lambda: _ready_pods(scene, "pulled", 2), 120)


def _ready_pods(scene: Scene, name: str, wanted: int) -> bool | Unmet:
    found = sum(volumes.is_ready(pod.get("status", {})) for pod in scene.pods(name))
    return True if found == wanted else Unmet(f"{found} pods are ready")


def test_model_on_a_volume_of_the_namespace_outlives_its_source(scene: Scene) -> None:
    model = scene.model(slope=4.0)
    volume = volumes.shared(scene.api, scene.namespace, registry(), TAG)
    cache = {"storageClassName": scene.namespace, "size": "16Mi"}
    source = {"uri": scene.world.store.uri(model), "format": "onnx", "sha256": model.sha256}
    try:
        scene.serve("first", model, model={**source, "cache": cache})
        scene.world.store.fault(model, "not-found")
        scene.serve("second", model, model={**source, "cache": cache})
        scene.predicts("second", model)
        scene.apply("first", model, model={**source, "cache": cache}, env=[{"name": "LEVEL", "value": "2"}])
        scene.ready("first")
        scene.predicts("first", model)
        (claim,) = scene.api.list("PersistentVolumeClaim", scene.namespace)
        scene.apply("nowhere", model, model={**source, "cache": {**cache, "storageClassName": "nowhere"}})
        scene.condition("nowhere", "ModelVerified", "False", "CacheUnusable", "StorageClass nowhere")
        for name in ("first", "second", "nowhere"):
            scene.api.delete("InferenceService", name, scene.namespace)
        scene.gone("PersistentVolumeClaim", claim["metadata"]["name"])
    finally:
        scene.api.delete("PersistentVolume", volume)


def test_source_without_a_digest_is_downloaded_once_to_the_volume_of_the_namespace(scene: Scene) -> None:
    model = scene.model(slope=3.0)
    volume = volumes.shared(scene.api, scene.namespace, registry(), TAG)
    cache = {"storageClassName": scene.namespace, "size": "16Mi"}

    def digest_is_known() -> bool | Unmet:
        return bool(scene.api.list("ControllerRevision", scene.namespace)) or Unmet("there is no revision")

    try:
        source = {"uri": scene.world.store.uri(model), "format": "onnx", "cache": cache}
        scene.apply("unpinned", model, model=source)
        scene.wait("the digest", digest_is_known, 120)
        scene.world.store.fault(model, "not-found")
        service = scene.ready("unpinned")
        scene.predicts("unpinned", model)
        scene.gone("Job", serving(service))
        (claim,) = scene.api.list("PersistentVolumeClaim", scene.namespace)
        scene.api.delete("InferenceService", "unpinned", scene.namespace)
        scene.gone("PersistentVolumeClaim", claim["metadata"]["name"])
    finally:
        scene.api.delete("PersistentVolume", volume)


def test_source_without_a_digest_is_read_once_and_again_at_a_refresh(scene: Scene) -> None:
    first = scene.model(slope=2.0)
    second = Model(first.name, models.affine("changed", slope=9.0).content)
    source = {"uri": scene.world.store.uri(first), "format": "onnx"}
    scene.apply("unpinned", first, model=source)
    scene.apply("missing", first, model={**source, "uri": f"{source['uri']}-of-nobody"})
    service = scene.ready("unpinned")
    scene.predicts("unpinned", first)
    assert first.sha256 in str(scene.api.need("ControllerRevision", serving(service), scene.namespace))
    scene.gone("Job", serving(service))
    scene.condition("missing", "ModelVerified", "False", "SourceNotFound", "spec.model.sha256 is missing")
    scene.world.store.put(second)
    (pod,) = scene.pods("unpinned")
    scene.api.delete("Pod", pod["metadata"]["name"], scene.namespace)
    scene.condition("unpinned", "ModelVerified", "False", "SourceChanged", second.sha256)
    scene.world.kubectl.run("annotate", "-n", scene.namespace, "infs/unpinned", "tailbound.dev/refresh=again")
    scene.condition("unpinned", "ModelVerified", "True", "DigestMatches")
    scene.ready("unpinned")
    scene.predicts("unpinned", second)


def test_status_shows_how_far_a_download_is(scene: Scene) -> None:
    slow = Model(f"{scene.namespace}-slow.onnx", b"no model" * (1 << 21))  # a minute at the slow rate
    scene.world.store.put(slow)
    scene.world.store.fault(slow, "slow")
    scene.apply("slow", slow)
    scene.apply("unpinned", slow, model={"uri": scene.world.store.uri(slow), "format": "onnx"})

    def probe() -> bool | Unmet:
        said = scene.world.kubectl.plugin.run("status", "slow", "-n", scene.namespace)
        return True if "DOWNLOAD OF POD" in said and "of 16.8 MB" in said else Unmet(said)

    def job() -> bool | Unmet:
        said = conditions(scene.service("unpinned")).get("ModelVerified", {}).get("message", "")
        return True if said.startswith("Job ") and "of 16.8 MB" in said else Unmet(said)

    scene.wait("the progress of the Job that finds a digest", job, 60)
    scene.wait("the bar of a download", probe, 60)
    scene.condition("slow", "ModelVerified", "Unknown", "Fetching", "of 16.8 MB", within=60)
