"""gs, az and hf against emulations of the providers: URLs, formats, credentials, TLS. See `clouds`."""

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import obstore
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from obstore.store import MemoryStore
from tailbound.api.runtime_contract import FetchEnv, TerminationReason
from tailbound.fetch.addresses import AddressPolicy
from tailbound.fetch.buckets import BucketConnection, S3Options, open_bucket
from tailbound.fetch.credentials import Credentials
from tailbound.fetch.dial import Dialer
from tailbound.fetch.digest import digest_of
from tailbound.fetch.download import FetchDependencies, Retries
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.fetching import Access, FetchRequest, fetch
from tailbound.fetch.gate import Gate
from tailbound.fetch.manifest import MOST_FILES
from tailbound.fetch.stores import ObjectSource

from tests.unit.fetch.clouds import AZURE, CDN, COMMIT, GCS, HUB, Clouds, emulated

FILES = {"one.onnx": b"one" * 1000, "v/model.onnx": b"graph", "v/onnx/weights.bin": b"w" * 500_000}
ALL = AddressPolicy.from_env({FetchEnv.ALLOWED_HOSTS: ",".join((GCS, AZURE, HUB, CDN))})
WORLD = FetchDependencies(
    retries=Retries(attempts=1), emit=lambda *_, **__: None, sleep=lambda _: None, jitter=lambda: 0.0
)
ROOTS = {"gs": "gs://models", "az": "az://riskmodels/models", "hf": f"hf://risk/churn@{COMMIT}"}


def _service_account() -> str:
    """The key file of a service account, with a key of its own."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return json.dumps(
        {
            "type": "service_account",
            "private_key_id": "1",
            "private_key": key.decode(),
            "client_email": "reader@risk.iam.gserviceaccount.com",
        }
    )


@pytest.fixture
def clouds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clouds]:
    with emulated(FILES, monkeypatch) as clouds:
        yield clouds


def run(clouds: Clouds, folder: Path, uri: str, sha256: str, access: Access | None = None) -> str:
    order = FetchRequest(uri, sha256, folder / "model.onnx")
    return fetch(order, access or Access(ALL, ca=clouds.ca), WORLD).message


@pytest.mark.parametrize("scheme", ROOTS)
def test_a_file_is_fetched(clouds: Clouds, tmp_path: Path, scheme: str) -> None:
    run(clouds, tmp_path, f"{ROOTS[scheme]}/one.onnx", hashlib.sha256(FILES["one.onnx"]).hexdigest())
    assert (tmp_path / "model.onnx").read_bytes() == FILES["one.onnx"]
    assert {authorization for _, _, authorization in clouds.requests} == {None}


@pytest.mark.parametrize("scheme", ROOTS)
def test_a_folder_is_fetched(clouds: Clouds, tmp_path: Path, scheme: str) -> None:
    for name, data in FILES.items():
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_bytes(data)
    output = tmp_path / "models"
    output.mkdir()
    run(clouds, output, f"{ROOTS[scheme]}/v", digest_of(tmp_path / "source" / "v"))
    assert (output / "onnx" / "weights.bin").read_bytes() == FILES["v/onnx/weights.bin"]


@pytest.mark.parametrize("scheme", ROOTS)
def test_a_folder_that_should_be_an_archive_is_refused_before_a_file_of_it(
    clouds: Clouds, tmp_path: Path, scheme: str
) -> None:
    order = FetchRequest(f"{ROOTS[scheme]}/v", "0" * 64, tmp_path / "model.onnx", archive="tar")
    with pytest.raises(FetchFailedError, match=r"/v/ is a folder, and spec\.model\.archive is for a file"):
        fetch(order, Access(ALL, ca=clouds.ca), WORLD)
    assert not [path for _, path, _ in clouds.requests if path.endswith(("model.onnx", "weights.bin"))]


@pytest.mark.parametrize("scheme", ROOTS)
def test_what_is_missing_is_named(clouds: Clouds, tmp_path: Path, scheme: str) -> None:
    with pytest.raises(FetchFailedError) as caught:
        run(clouds, tmp_path, f"{ROOTS[scheme]}/none", "a" * 64)
    assert caught.value.reason is TerminationReason.SOURCE_NOT_FOUND


@pytest.mark.parametrize("scheme", ROOTS)
def test_the_provider_is_refused_where_its_name_leads_inside(
    clouds: Clouds, tmp_path: Path, scheme: str
) -> None:
    access = Access(AddressPolicy.from_env({}), ca=clouds.ca)
    with pytest.raises(FetchFailedError) as caught:
        run(clouds, tmp_path, f"{ROOTS[scheme]}/one.onnx", "a" * 64, access)
    assert caught.value.reason is TerminationReason.ADDRESS_DENIED
    assert clouds.requests == []


@pytest.mark.parametrize("scheme", ROOTS)
def test_another_certificate_is_not_trusted(clouds: Clouds, tmp_path: Path, scheme: str) -> None:
    with pytest.raises(FetchFailedError) as caught:
        run(clouds, tmp_path, f"{ROOTS[scheme]}/one.onnx", "a" * 64, Access(ALL))
    assert caught.value.reason is TerminationReason.SOURCE_UNREACHABLE
    assert clouds.requests == []


def test_the_token_goes_to_the_hub_and_to_no_host_that_it_redirects_to(
    clouds: Clouds, tmp_path: Path
) -> None:
    clouds.token = "hf_s3cret"
    anonymous = Access(ALL, ca=clouds.ca)
    uri, sha256 = f"{ROOTS['hf']}/one.onnx", hashlib.sha256(FILES["one.onnx"]).hexdigest()
    with pytest.raises(FetchFailedError) as caught:
        run(clouds, tmp_path, uri, sha256, anonymous)
    assert caught.value.reason is TerminationReason.SOURCE_FORBIDDEN
    clouds.requests.clear()
    run(
        clouds,
        tmp_path,
        uri,
        sha256,
        replace(anonymous, credentials=Credentials({"token": "hf_s3cret"}, (HUB,))),
    )
    sent = {(host, authorization) for host, _, authorization in clouds.requests}
    assert sent == {(HUB, "Bearer hf_s3cret"), (CDN, None)}


@pytest.mark.parametrize(
    ("scheme", "values", "host"),
    [
        ("gs", {"GOOGLE_SERVICE_ACCOUNT_KEY": _service_account()}, GCS),
        ("az", {"AZURE_STORAGE_ACCOUNT_KEY": base64.b64encode(b"key").decode()}, AZURE),
        ("az", {"AZURE_STORAGE_SAS_KEY": "sv=2026-01-01&sig=s3cret"}, AZURE),
    ],
    ids=["service-account", "account-key", "signature"],
)
def test_requests_carry_the_identity_of_the_secret_if_it_is_for_the_host(
    clouds: Clouds, tmp_path: Path, scheme: str, values: dict[str, str], host: str
) -> None:
    uri, sha256 = f"{ROOTS[scheme]}/one.onnx", hashlib.sha256(FILES["one.onnx"]).hexdigest()
    elsewhere = Access(ALL, ca=clouds.ca, credentials=Credentials(values, ("models.example.com",)))
    with pytest.raises(FetchFailedError) as caught:
        run(clouds, tmp_path, uri, sha256, elsewhere)
    assert caught.value.reason is TerminationReason.CREDENTIALS_REFUSED
    assert clouds.requests == []
    run(clouds, tmp_path, uri, sha256, replace(elsewhere, credentials=Credentials(values, (host,))))
    for _, path, authorization in clouds.requests:
        assert "sig=s3cret" in path or (authorization or "").startswith(
            ("SharedKey riskmodels:", "Bearer ey")
        )


@pytest.mark.parametrize("used", [True, False])
def test_the_workload_identity_is_not_used_through_the_proxy_of_the_service(
    clouds: Clouds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: bool
) -> None:
    """An author who brings the proxy and the certificates could otherwise read the token of the pod."""
    (tmp_path / "token").write_text("s3cret")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AZURE_CLIENT_ID", "client")
    monkeypatch.setenv("AZURE_TENANT_ID", "tenant")
    with Gate(Dialer(ALL, WORLD.time_outs)) as gate:
        connection = BucketConnection(gate, WORLD, clouds.ca, workload_identity=used)
        bucket = open_bucket(f"{ROOTS['az']}/one.onnx", S3Options(), None, connection)
        source = ObjectSource(bucket.store, gate, bucket.shown)
        if used:
            with pytest.raises(
                FetchFailedError, match=r"login\.microsoftonline\.com may not be fetched from"
            ):
                source.has(bucket.key)
        else:
            assert source.has(bucket.key)
            assert {authorization for _, _, authorization in clouds.requests} == {None}


def test_a_bucket_of_too_many_objects_is_refused_unless_patterns_choose_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    for number in range(MOST_FILES + 1):
        obstore.put(store, f"models/{number:05}.txt", b"")
    obstore.put(store, "models/z/model.onnx", b"graph")
    with Gate(Dialer(ALL, WORLD.time_outs)) as gate:
        source = ObjectSource(store, gate, "s3://bucket")
        for patterns in ((), ("*.txt",)):
            with pytest.raises(
                FetchFailedError, match=f"s3://bucket/models/ has more than {MOST_FILES} files"
            ):
                source.folder("models", patterns)
        assert source.folder("models", ("**/*.onnx",)).files == [("z/model.onnx", 5)]
        monkeypatch.setattr("tailbound.fetch.patterns.MOST_LISTED", MOST_FILES)
        with pytest.raises(FetchFailedError, match="the most that are looked at: name a smaller folder"):
            source.folder("models", ("**/*.onnx",))


@pytest.mark.parametrize("scheme", ["gs", "hf"])
def test_no_digest_is_found_of_a_folder_that_changes_meanwhile(
    clouds: Clouds, tmp_path: Path, scheme: str
) -> None:
    after = {name: data + b"new" for name, data in FILES.items()}

    def emit(event: str, **fields: object) -> None:
        if (event, fields.get("path")) == ("fetched a file", "model.onnx"):
            clouds.files = after

    order = FetchRequest(f"{ROOTS[scheme]}/v", None, tmp_path / "model.onnx", resolve=True)
    world, access = replace(WORLD, emit=emit), Access(ALL, ca=clouds.ca)
    with pytest.raises(FetchFailedError, match="have changed while they were read") as caught:
        fetch(order, access, world)
    assert (caught.value.reason, clouds.files) == (TerminationReason.SOURCE_CHANGED, after)
    assert fetch(order, access, world).sha256 is not None


def test_a_digest_that_the_hub_states_is_found_without_the_file(clouds: Clouds, tmp_path: Path) -> None:
    for name, data in FILES.items():
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_bytes(data)
    folder, clouds.lfs = tmp_path / "source" / "v", frozenset({"one.onnx", "v/onnx/weights.bin"})
    for path, wanted in (("one.onnx", digest_of(tmp_path / "source" / "one.onnx")), ("v", digest_of(folder))):
        order = FetchRequest(f"{ROOTS['hf']}/{path}", None, tmp_path / path / "model.onnx", resolve=True)
        found = fetch(order, Access(ALL, ca=clouds.ca), WORLD)
        assert found.sha256 == wanted
        assert found.stated
    assert [path for host, path, _ in clouds.requests if host == CDN] == ["/v/model.onnx"]
    elsewhere = tmp_path / "elsewhere"
    order = FetchRequest(f"{ROOTS['hf']}/v", None, elsewhere / "other.onnx", resolve=True)
    with pytest.raises(FetchFailedError, match=r"it holds model.onnx, onnx/weights.bin"):
        fetch(order, Access(ALL, ca=clouds.ca), WORLD)


def test_a_folder_of_a_repository_is_listed_alone_however_large_the_repository_is(
    clouds: Clouds, tmp_path: Path
) -> None:
    clouds.files = {**FILES, **{f"training/{number:05}.txt": b"" for number in range(MOST_FILES)}}
    clouds.page = 1000
    order = FetchRequest(f"{ROOTS['hf']}/v", None, tmp_path / "model.onnx", resolve=True)
    assert fetch(order, Access(ALL, ca=clouds.ca), WORLD).sha256 is not None
    listed = [path for host, path, _ in clouds.requests if host == HUB and "/tree/" in path]
    assert [path.rpartition(COMMIT)[2] for path in listed] == ["", *["/v?recursive=true"] * 2]
    with pytest.raises(FetchFailedError, match=f"hf://risk/churn@{COMMIT}/ has more than {MOST_FILES} files"):
        fetch(replace(order, uri=ROOTS["hf"]), Access(ALL, ca=clouds.ca), WORLD)
    few = replace(order, uri=ROOTS["hf"], files=("v/**",), output=tmp_path / "few" / "v" / "model.onnx")
    assert "2 files" in fetch(replace(few, path="v/model.onnx"), Access(ALL, ca=clouds.ca), WORLD).message
