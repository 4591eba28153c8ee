"""The model of a service: where it comes from, what pins it, and how its source is reached."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StrictBool, StringConstraints

from tailbound.api.meta import ObjectName
from tailbound.api.model_size import ModelSize
from tailbound.api.quantities import Quantity
from tailbound.api.quantity_fields import quantity_between
from tailbound.api.schema import SET, InOrder, Model, Rule, matches
from tailbound.api.servingruntime import FormatName

CLAIM_PREFIX: Final = "tailbound-model-"
"""How the names of these claims begin."""


class CacheAccessMode(StrEnum):
    """Which nodes the pods that mount the volume may be on."""

    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE = "ReadWriteOnce"


class ModelCache(Model):
    """A PersistentVolumeClaim for the model, named after the model's digest. All revisions and services of
    the namespace with the same model and the same cache share it: the first pod downloads the model to it,
    every further one finds it there, also when the source is gone. It is deleted with the last revision that
    needs it."""

    storage_class_name: ObjectName | None = None
    """StorageClass of the volume. Default: the cluster's default class."""

    size: Annotated[
        Quantity, quantity_between("1Mi", "1Pi", "an amount of disk with its unit, for example 50Gi")
    ]
    """Size of the volume, with its unit. The model must be smaller; an archive needs room for itself and for
    what it holds."""

    access_mode: CacheAccessMode = CacheAccessMode.READ_WRITE_MANY
    """ReadWriteMany for pods on any nodes, as of a network file system. ReadWriteOnce is for a volume that
    one node at a time can mount, as most disks of clouds: all pods with the model must run on that node."""


MOUNTED_SCHEMES: Final = ("pvc://", "oci://")
"""Sources that are volumes of the pod."""

_URL: Final = r"https?://(?:[A-Za-z0-9](?:[-_A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:[/?][!-\"$-~]*)?"
_ENDPOINT: Final = (
    r"https?://(?:[A-Za-z0-9](?:[-_A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
)
_KEY: Final = r"(?:/[!-\"$-.0-9:-~]+)*/?"
_BUCKET: Final = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]" + _KEY
_GCS_BUCKET: Final = r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]" + _KEY
_CONTAINER: Final = r"az://[a-z0-9]{3,24}/[a-z0-9](?:[a-z0-9-]{1,61}[a-z0-9])" + _KEY
_HUB: Final = r"hf://[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9._-]*" + _KEY
_CLAIM: Final = r"pvc://[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?" + _KEY
_IMAGE: Final = r"oci://[a-z0-9.-]+(?::[0-9]{1,5})?(?:/[a-z0-9._-]+)+@sha256:[0-9a-f]{64}"

_PATTERN_PART: Final = r"(?:(?:\*?[A-Za-z0-9_?.-])+\*?|\*)"

_SCHEMES: Final = ("https?", "s3", "gs", "az", "hf", "pvc", "oci")


def _of(scheme: str, pattern: str) -> str:
    """A pattern for the URIs of one scheme, which those of all others match, too."""
    others = "|".join(each for each in _SCHEMES if each != scheme)
    return f"{pattern}|(?:{others})://(?s:.*)"


ModelUri = Annotated[
    str,
    StringConstraints(max_length=2048),
    InOrder(
        matches(
            f"(?:{'|'.join(_SCHEMES)})://(?s:.*)",
            "'{value}' cannot be fetched: the schemes supported now are http, https, s3, gs, az, hf, pvc and "
            "oci, write for example https://models.example.com/churn.onnx, s3://models/churn/7 or "
            "pvc://CLAIM/churn.onnx",
        ),
        matches(
            r"[a-z0-9]+://[^/?#@]*(?:[/?#](?s:.*))?|oci://(?s:.*)",
            "'{value}' holds credentials, which everyone who may read this object would see: remove the part "
            "before the @",
        ),
        matches(
            _of("https?", _URL),
            "'{value}' is not the URL of a file: write a scheme, a host and a path without blanks, for "
            "example https://models.example.com/churn.onnx",
        ),
        matches(
            _of("s3", _BUCKET),
            "'{value}' is not an object or a folder in a bucket: write s3://BUCKET/KEY without blanks and "
            "empty parts, for example s3://models/churn/7",
        ),
        matches(
            _of("gs", _GCS_BUCKET),
            "'{value}' is not an object or a folder in a bucket: write gs://BUCKET/KEY without blanks and "
            "empty parts, for example gs://models/churn/7",
        ),
        matches(
            _of("az", _CONTAINER),
            "'{value}' is not a blob or a folder in a container: write az://ACCOUNT/CONTAINER/KEY without "
            "blanks and empty parts, for example az://riskmodels/models/churn/7",
        ),
        matches(
            _of("hf", _HUB),
            "'{value}' is not a revision of a model of the Hugging Face hub: write hf://OWNER/NAME@REVISION, "
            "where REVISION is best a commit, and a path behind it for a part of the repository",
        ),
        matches(
            _of("pvc", _CLAIM),
            "'{value}' is not a path on a PersistentVolumeClaim: write pvc://CLAIM/PATH without blanks and "
            "empty parts, for example pvc://models/churn/7",
        ),
        matches(
            _of("oci", _IMAGE),
            "'{value}' does not pin an image: write oci://REGISTRY/REPOSITORY@sha256:DIGEST",
        ),
        Rule(
            cel="!self.contains('/../') && !self.endsWith('/..') && !self.contains('/./') "
            "|| self.startsWith('http')",
            holds=lambda uri: (
                uri.startswith("http") or not ("/../" in uri or uri.endswith("/..") or "/./" in uri)
            ),
            message="'{value}' has '.' or '..' as a part of its path: write the path itself",
        ),
    ),
]

PathInFolder = Annotated[
    str,
    StringConstraints(max_length=512),
    matches(
        r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*",
        "'{value}' is not a path in the folder: write it without a slash in front, and with letters, digits, "
        "'.', '_' and '-', none of whose parts begins with '.', for example onnx/model.onnx",
    ),
]


FilePattern = Annotated[
    str,
    StringConstraints(max_length=256),
    matches(
        rf"(?:{_PATTERN_PART}/)*(?:{_PATTERN_PART}|\*\*(?:/{_PATTERN_PART})*)",
        "'{value}' is not a pattern of files: write a path in the folder with '*' for any text of a part and "
        "at most one '**' for any number of parts, for example *.onnx or onnx/** or **/*.json",
    ),
]


class Archive(StrEnum):
    """Kinds of archives."""

    TAR = "tar"
    ZIP = "zip"


class SecretReference(Model):
    """A Secret in the namespace."""

    name: ObjectName
    """Name of the Secret."""


class ConfigMapReference(Model):
    """A ConfigMap in the namespace."""

    name: ObjectName
    """Name of the ConfigMap."""


class S3(Model):
    """How an S3 store is reached."""

    endpoint: (
        Annotated[
            str,
            StringConstraints(max_length=512),
            matches(
                _ENDPOINT,
                "'{value}' is not an endpoint: write a scheme and a host, with a port if needed, for example "
                "https://s3.example.com",
            ),
        ]
        | None
    ) = None
    """URL of the store. Default: AWS in the region."""

    region: Annotated[
        str,
        StringConstraints(max_length=63),
        matches("[a-z0-9-]+", "'{value}' is not a region: write for example eu-central-1"),
    ] = "us-east-1"
    """Region of the bucket."""

    path_style: StrictBool = True
    """Whether the bucket is the first part of the path (true), or of the host name (false)."""


class ModelSource(Model):
    """Location, format and digest of the model."""

    rules = (
        Rule(
            cel="!has(self.path) || !self.uri.startsWith('http') || has(self.archive)",
            holds=lambda model: (
                model.path is None or not model.uri.startswith("http") or model.archive is not None
            ),
            message="path '{value}' names a file in a folder, and an http or https source is one file: "
            "remove path",
            quoted="path",
        ),
        Rule(
            cel="!has(self.files) || size(self.files) == 0 || !self.uri.startsWith('http') "
            "|| has(self.archive)",
            holds=lambda model: (
                not model.files or not model.uri.startswith("http") or model.archive is not None
            ),
            message="files chooses files of a folder, and an http or https source is one file: remove files",
        ),
        Rule(
            cel="!has(self.archive) || !self.uri.startsWith('pvc://') && !self.uri.startsWith('oci://')",
            holds=lambda model: model.archive is None or not model.mounted,
            message="archive is for downloads, and '{value}' is mounted: remove archive, and put the "
            "unpacked files there",
            quoted="uri",
        ),
        Rule(
            cel="!has(self.cache) || !self.uri.startsWith('pvc://') && !self.uri.startsWith('oci://')",
            holds=lambda model: model.cache is None or not model.mounted,
            message="cache keeps a download, and '{value}' is mounted: remove cache",
            quoted="uri",
        ),
        Rule(
            cel="!has(self.s3) || self.uri.startsWith('s3://')",
            holds=lambda model: model.s3 is None or model.uri.startswith("s3://"),
            message="s3 says how a bucket is reached, and uri is '{value}': remove s3, or write "
            "s3://BUCKET/KEY",
            quoted="uri",
        ),
        Rule(
            cel="!has(self.secretRef) || !has(self.proxy)",
            holds=lambda model: model.secret_ref is None or model.proxy is None,
            message="proxy '{value}' could read the credentials of secretRef, whose owner did not choose it: "
            "remove proxy, and use fetch.proxy of the chart",
            quoted="proxy",
        ),
        Rule(
            cel="!self.uri.startsWith('pvc://') && !self.uri.startsWith('oci://') "
            "|| !has(self.secretRef) && !has(self.caRef) && !has(self.proxy)",
            holds=lambda model: (
                not model.mounted
                or (model.secret_ref is None and model.ca_ref is None and model.proxy is None)
            ),
            message="secretRef, caRef and proxy are for downloads, and '{value}' is mounted: remove them; "
            "images are pulled with spec.imagePullSecrets",
            quoted="uri",
        ),
    )

    uri: ModelUri
    """Where the model is: https://HOST/FILE or http://HOST/FILE; s3://BUCKET/KEY, gs://BUCKET/KEY or
    az://ACCOUNT/CONTAINER/KEY (an object, or else the folder of all objects below the key);
    hf://OWNER/NAME@REVISION (a repository of the Hugging Face hub, or with a path behind it a part of it);
    pvc://CLAIM/PATH (a file or a folder on a PersistentVolumeClaim, mounted read-only);
    oci://REGISTRY/REPOSITORY@sha256:DIGEST (an image, mounted read-only; Kubernetes 1.35 or newer)."""

    format: FormatName
    """Format of the model, for example onnx. It chooses the runtime."""

    sha256: (
        Annotated[
            str,
            StringConstraints(max_length=128),
            matches(
                "[0-9a-f]{64}",
                "'{value}' is not a SHA-256 digest: write 64 lower-case hexadecimal digits, as sha256sum "
                "FILE prints them, or tailbound digest FOLDER",
            ),
        ]
        | None
    ) = None
    """SHA-256 digest of the file (sha256sum FILE), or of the manifest of the folder (tailbound digest
    FOLDER). Every pod verifies it, so that all pods and a rollback serve exactly the same model. Without it a
    Job in the namespace reads the source once, and every pod verifies the digest that it found: no pod starts
    with a source that has changed since. kubectl tailbound refresh reads it again."""

    size: ModelSize | None = None
    """Memory that the model needs on devices. A HardwareClass whose deviceMemory is less is refused before a
    pod is made. Default: unknown, and nothing is refused."""

    path: PathInFolder | None = None
    """Where the model's file lies in the folder, for example onnx/model.onnx. Default: model.FORMAT."""

    files: Annotated[tuple[FilePattern, ...], Field(max_length=16), SET] = ()
    """Patterns of the files of a folder that are the model, for example *.onnx, onnx/** or **/*.json; others
    are not fetched. * stands for any text of a part of the path, ** for any number of parts. Default: all.
    sha256 is then the digest of these files (tailbound digest FOLDER --files PATTERN)."""

    archive: Archive | None = None
    """tar (also with gzip, bzip2 or xz) or zip: the source is an archive, and the folder of the model is what
    it holds. sha256 is that of the archive. Links and devices in it are refused."""

    cache: ModelCache | None = None
    """Volume of the namespace to which the model is downloaded once. Default: every pod downloads it to its
    own disk."""

    secret_ref: SecretReference | None = None
    """Secret with the credentials of the source. Its key hosts lists the hosts that it may be used for, as
    HOST, or as HOST:PORT for another port than that of https (443) or http (80). Further keys: for http and
    https token, or username and password; for hf token; for s3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,
    and maybe AWS_SESSION_TOKEN; for gs GOOGLE_SERVICE_ACCOUNT_KEY; for az AZURE_STORAGE_ACCOUNT_KEY or
    AZURE_STORAGE_SAS_KEY."""

    s3: S3 | None = None
    """How the S3 store is reached. Default: AWS in us-east-1."""

    ca_ref: ConfigMapReference | None = None
    """ConfigMap whose key ca.crt holds further certificate authorities to trust, in PEM."""

    proxy: (
        Annotated[
            str,
            StringConstraints(max_length=512),
            matches(
                r"http://[A-Za-z0-9](?:[-_A-Za-z0-9.]*[A-Za-z0-9])?:[0-9]{1,5}",
                "'{value}' is not a proxy: write http://HOST:PORT",
            ),
        ]
        | None
    ) = None
    """HTTP proxy of the download, which must allow CONNECT. Default: that of the chart, if it sets one. It
    goes neither with secretRef nor with a workload identity: it could read the credentials."""

    @property
    def pinned(self) -> bool:
        """Whether the spec itself says which bytes the model has: an image is named by its digest."""
        return self.sha256 is not None or self.uri.startswith("oci://")

    @property
    def mounted(self) -> bool:
        """Whether the source is a volume of the pod."""
        return self.uri.startswith(MOUNTED_SCHEMES)
