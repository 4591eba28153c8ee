"""Which bucket an s3, gs or az URI means, and whose identity its requests carry.

| source | identity |
|---|---|
| with secretRef | that of the Secret, if it lists the host of the store |
| s3 or az without, in a pod with the workload identity of that cloud | the workload identity |
| the same, through the service's own proxy, which could read it | none: requests are not signed |
| without either | none |

The identity of the node is never used: the library would ask a metadata server for it.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from tailbound.environment import process_variables
from tailbound.fetch.credentials import Credentials
from tailbound.fetch.download import FetchDependencies
from tailbound.fetch.gate import Gate

DEFAULT_REGION: Final = "us-east-1"
_AWS_IDENTITY: Final = "AWS_WEB_IDENTITY_TOKEN_FILE"
_AZURE_IDENTITY: Final = "AZURE_FEDERATED_TOKEN_FILE"
_GCS: Final = urlsplit("https://storage.googleapis.com")


@dataclass(frozen=True)
class S3Options:
    """How an S3 store is reached. endpoint: None for AWS; virtual_hosts: the bucket is part of the host."""

    endpoint: str | None = None
    region: str = DEFAULT_REGION
    virtual_hosts: bool = False

    @property
    def url(self) -> SplitResult:
        """The URL of the store, which credentials are sent to."""
        return urlsplit(self.endpoint or f"https://s3.{self.region}.amazonaws.com")


@dataclass(frozen=True)
class BucketConnection:
    """How the library connects: through the gate, with these bounds and further certificates in PEM.

    workload_identity: whether that of the pod may be used.
    """

    gate: Gate
    world: FetchDependencies
    ca: str | None = None
    workload_identity: bool = True

    def options(self, *, plain: bool = False) -> Any:
        """The library's client options. plain: HTTP without TLS."""
        options: dict[str, Any] = {
            "proxy_url": self.gate.url,
            "allow_http": plain,
            "connect_timeout": timedelta(seconds=self.world.time_outs.connect_seconds),
            "read_timeout": timedelta(seconds=self.world.time_outs.stall_seconds),
            "timeout": timedelta(seconds=self.world.limits.total_seconds),
        }
        if self.ca is not None:
            options["root_certificate"] = self.ca
        return options


# Downloads have their own retries, which resume and are logged.
_NO_RETRIES: Final[Any] = {"max_retries": 0, "retry_timeout": timedelta(seconds=1)}


@dataclass(frozen=True)
class Bucket:
    """An opened bucket, its URI and the key in it that the model's URI names."""

    store: ObjectStore
    shown: str
    key: str


def open_bucket(
    uri: str, s3: S3Options, credentials: Credentials | None, connection: BucketConnection
) -> Bucket:
    """The bucket of a URI. Raises FetchFailedError if the credentials are not for its host."""
    scheme, _, rest = uri.partition("://")
    if scheme == "s3":
        bucket, _, key = rest.partition("/")
        store = s3_store(bucket, s3, credentials, connection)
        return Bucket(store, f"s3://{bucket}", key)
    if scheme == "gs":
        bucket, _, key = rest.partition("/")
        return Bucket(_gcs_store(bucket, credentials, connection), f"gs://{bucket}", key)
    account, container, key = (*rest.split("/", 2), "")[:3]
    store = _azure_store(account, container, credentials, connection)
    return Bucket(store, f"az://{account}/{container}", key)


def s3_store(
    bucket: str, options: S3Options, credentials: Credentials | None, connection: BucketConnection
) -> ObjectStore:
    """A bucket of S3; raises FetchFailedError if the credentials are not for its host."""
    identity: dict[str, Any] = {"skip_signature": True}
    if credentials is not None:
        credentials.check(options.url)
        key, secret = credentials.require("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        identity = {"access_key_id": key, "secret_access_key": secret}
        if token := credentials.values.get("AWS_SESSION_TOKEN"):
            identity["session_token"] = token
    elif connection.workload_identity and process_variables().get(_AWS_IDENTITY):
        identity = {}
    if options.endpoint is not None:
        identity["endpoint"] = options.endpoint
    return S3Store(
        bucket,
        region=options.region,
        virtual_hosted_style_request=options.virtual_hosts,
        client_options=connection.options(plain=(options.endpoint or "").startswith("http://")),
        retry_config=_NO_RETRIES,
        **identity,
    )


def _gcs_store(bucket: str, credentials: Credentials | None, connection: BucketConnection) -> ObjectStore:
    identity: dict[str, Any] = {"skip_signature": True}
    if credentials is not None:
        credentials.check(_GCS)
        (key,) = credentials.require("GOOGLE_SERVICE_ACCOUNT_KEY")
        identity = {"service_account_key": key}
    return GCSStore(bucket, client_options=connection.options(), retry_config=_NO_RETRIES, **identity)


def _azure_store(
    account: str, container: str, credentials: Credentials | None, connection: BucketConnection
) -> ObjectStore:
    identity: dict[str, Any] = {"skip_signature": True}
    if credentials is not None:
        credentials.check(urlsplit(f"https://{account}.blob.core.windows.net"))
        if signature := credentials.values.get("AZURE_STORAGE_SAS_KEY"):
            identity = {"sas_key": signature}
        else:
            (key,) = credentials.require("AZURE_STORAGE_ACCOUNT_KEY")
            identity = {"account_key": key}
    elif connection.workload_identity and process_variables().get(_AZURE_IDENTITY):
        identity = {}
    return AzureStore(
        container,
        account_name=account,
        client_options=connection.options(),
        retry_config=_NO_RETRIES,
        **identity,
    )
