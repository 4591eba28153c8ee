"""What is refused in spec.model of an InferenceService."""

from tests.api_cases.objects import SERVICE, SHA256
from tests.api_cases.refusal import FORMAT, Refusal, quoted, service

_URL = (
    "is not the URL of a file: write a scheme, a host and a path without blanks, for example "
    "https://models.example.com/churn.onnx"
)
_SCHEME = (
    "cannot be fetched: the schemes supported now are http, https, s3, gs, az, hf, pvc and oci, write for "
    "example https://models.example.com/churn.onnx, s3://models/churn/7 or pvc://CLAIM/churn.onnx"
)
_OBJECT = (
    "is not an object or a folder in a bucket: write s3://BUCKET/KEY without blanks and empty parts, for "
    "example s3://models/churn/7"
)
_IN_GCS = (
    "is not an object or a folder in a bucket: write gs://BUCKET/KEY without blanks and empty parts, for "
    "example gs://models/churn/7"
)
_IN_AZURE = (
    "is not a blob or a folder in a container: write az://ACCOUNT/CONTAINER/KEY without blanks and empty "
    "parts, for example az://riskmodels/models/churn/7"
)
_ON_THE_HUB = (
    "is not a revision of a model of the Hugging Face hub: write hf://OWNER/NAME@REVISION, where REVISION is "
    "best a commit, and a path behind it for a part of the repository"
)
_ON_A_CLAIM = (
    "is not a path on a PersistentVolumeClaim: write pvc://CLAIM/PATH without blanks and empty parts, for "
    "example pvc://models/churn/7"
)
_ENDPOINT = (
    "is not an endpoint: write a scheme and a host, with a port if needed, for example https://s3.example.com"
)
_PARTS = "has '.' or '..' as a part of its path: write the path itself"
_IMAGE = "does not pin an image: write oci://REGISTRY/REPOSITORY@sha256:DIGEST"
_PATH = (
    "is not a path in the folder: write it without a slash in front, and with letters, digits, '.', '_' and "
    "'-', none of whose parts begins with '.', for example onnx/model.onnx"
)
_CREDENTIALS = (
    "holds credentials, which everyone who may read this object would see: remove the part before the @"
)


def _s3(name: str, field: str, value: str, message: str) -> Refusal:
    """A wrong field of spec.model.s3."""
    model = {"uri": "s3://models/churn", "format": "onnx", "sha256": SHA256, "s3": {field: value}}
    return service(name, "spec.model", model, f"'{value}' {message}", f"spec.model.s3.{field}")


def _path(name: str, value: str) -> Refusal:
    """A wrong path of the model in a folder."""
    model = {"uri": "pvc://models/churn", "format": "onnx", "sha256": SHA256, "path": value}
    return service(name, "spec.model", model, f"'{value}' {_PATH}", "spec.model.path")


MODEL_REFUSALS = (
    quoted("uri of an unknown scheme", "spec.model.uri", "ftp://models/churn", _SCHEME),
    quoted("uri of a bucket of Google with a blank", "spec.model.uri", "gs://models/my churn", _IN_GCS),
    quoted("uri of an account without container", "spec.model.uri", "az://riskmodels", _IN_AZURE),
    quoted("uri of a repository without revision", "spec.model.uri", "hf://owner/name", _ON_THE_HUB),
    quoted("uri of a repository without owner", "spec.model.uri", "hf://name@main", _CREDENTIALS),
    quoted("uri with a bucket in capitals", "spec.model.uri", "s3://Models/churn", _OBJECT),
    quoted("uri with a blank in the key", "spec.model.uri", "s3://models/my churn", _OBJECT),
    quoted("uri with an empty part of the key", "spec.model.uri", "s3://models//churn", _OBJECT),
    quoted("uri of no claim", "spec.model.uri", "pvc:///churn", _ON_A_CLAIM),
    quoted("uri of a claim with a way up", "spec.model.uri", "pvc://models/../other", _PARTS),
    quoted("uri of a claim that ends above", "spec.model.uri", "pvc://models/a/..", _PARTS),
    quoted("uri of an image by its tag", "spec.model.uri", "oci://registry.example.com/churn:v1", _IMAGE),
    _s3("s3 endpoint with a path", "endpoint", "https://s3.example.com/models", _ENDPOINT),
    _s3("s3 region in capitals", "region", "EU", "is not a region: write for example eu-central-1"),
    service(
        "cache of half a mebibyte",
        "spec.model.cache",
        {"size": "512Ki"},
        "'512Ki' is out of range: write an amount of disk with its unit, for example 50Gi, from 1Mi to 1Pi",
        "spec.model.cache.size",
    ),
    _path("path of the model with a slash in front", "/model.onnx"),
    _path("path of the model with a way up", "a/../model.onnx"),
    service(
        "files with two runs of parts",
        "spec.model",
        {"uri": "pvc://models/churn", "format": "onnx", "files": ["**/a/**"]},
        "'**/a/**' is not a pattern of files: write a path in the folder with '*' for any text of a part and "
        "at most one '**' for any number of parts, for example *.onnx or onnx/** or **/*.json",
        "spec.model.files[0]",
    ),
    service(
        "archive on a claim",
        "spec.model",
        {"uri": "pvc://models/churn.tar", "format": "onnx", "archive": "tar"},
        "archive is for downloads, and 'pvc://models/churn.tar' is mounted: remove archive, and put the "
        "unpacked files there",
    ),
    service(
        "cache of a claim",
        "spec.model",
        {"uri": "pvc://models/m", "format": "onnx", "cache": {"size": "1Gi"}},
        "cache keeps a download, and 'pvc://models/m' is mounted: remove cache",
    ),
    service(
        "files of a file",
        "spec.model.files",
        ["*.onnx"],
        "files chooses files of a folder, and an http or https source is one file: remove files",
        "spec.model",
    ),
    service(
        "path in a file",
        "spec.model.path",
        "a/model.onnx",
        "path 'a/model.onnx' names a file in a folder, and an http or https source is one file: remove path",
        "spec.model",
    ),
    service(
        "s3 settings of another source",
        "spec.model.s3",
        {"region": "eu-central-1"},
        "s3 says how a bucket is reached, and uri is 'https://models.example.com/churn.onnx': remove s3, or "
        "write s3://BUCKET/KEY",
        "spec.model",
    ),
    service(
        "secret of a mounted source",
        "spec.model",
        {"uri": "pvc://models/m", "format": "onnx", "sha256": SHA256, "secretRef": {"name": "s"}},
        "secretRef, caRef and proxy are for downloads, and 'pvc://models/m' is mounted: remove them; images "
        "are pulled with spec.imagePullSecrets",
    ),
    service(
        "proxy for credentials",
        "spec.model",
        {**SERVICE["spec"]["model"], "secretRef": {"name": "s"}, "proxy": "http://proxy:3128"},
        "proxy 'http://proxy:3128' could read the credentials of secretRef, whose owner did not choose it: "
        "remove proxy, and use fetch.proxy of the chart",
    ),
    quoted(
        "proxy over https",
        "spec.model.proxy",
        "https://proxy:3128",
        "is not a proxy: write http://HOST:PORT",
    ),
    quoted("uri without scheme", "spec.model.uri", "models.example.com/churn.onnx", _SCHEME),
    quoted("uri in capitals", "spec.model.uri", "HTTP://models.example.com/churn.onnx", _SCHEME),
    quoted("uri with credentials", "spec.model.uri", "https://me:secret@example.com/m", _CREDENTIALS),
    quoted("uri with a user", "spec.model.uri", "https://me@example.com", _CREDENTIALS),
    quoted("uri without host", "spec.model.uri", "https:///churn.onnx", _URL),
    quoted("uri with a blank", "spec.model.uri", "https://example.com/my model", _URL),
    quoted("uri with a word for a port", "spec.model.uri", "https://example.com:http/m", _URL),
    quoted("uri with a fragment", "spec.model.uri", "https://example.com/m#v1", _URL),
    quoted("format with a dot", "spec.model.format", "model.onnx", FORMAT),
    quoted("format in capitals", "spec.model.format", "ONNX", FORMAT),
    quoted(
        "sha256 in capitals",
        "spec.model.sha256",
        SHA256.upper(),
        "is not a SHA-256 digest: write 64 lower-case hexadecimal digits, as sha256sum FILE prints them, "
        "or tailbound digest FOLDER",
    ),
    quoted(
        "sha256 with a prefix",
        "spec.model.sha256",
        f"sha256:{SHA256}",
        "is not a SHA-256 digest: write 64 lower-case hexadecimal digits, as sha256sum FILE prints them, "
        "or tailbound digest FOLDER",
    ),
    service(
        "parameters without a unit",
        "spec.model.size",
        {"parameters": "70", "dtype": "float16"},
        "'70' is not a number of parameters: write a number with one of the units K, M, B (10^9), T, for "
        "example 70B or 1.5B, in quotes",
        "spec.model.size.parameters",
    ),
    service(
        "parameters without a type",
        "spec.model.size",
        {"parameters": "70B"},
        "parameters and dtype go together: write both, or neither",
    ),
    service(
        "weights beside parameters",
        "spec.model.size",
        {"parameters": "70B", "dtype": "int8", "weights": "70G"},
        "write exactly one of weights and parameters, or activations alone: then the weights are read from "
        "the model's files",
    ),
)
