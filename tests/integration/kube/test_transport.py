"""The transport against the real API server: what is created, refused, guarded, watched and told apart."""

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration
from tailbound.kube.aio import AioCluster
from tailbound.kube.connection import load_configuration
from tailbound.kube.errors import Conflict, Expired, NameConflict, NotAdmitted, Terminal, Transient
from tailbound.kube.informer import Informer
from tailbound.kube.objects import key_of
from tailbound.kube.resources import DEPLOYMENTS, SERVICES, Resource
from tailbound.kube.store import ObjectStore
from tailbound.objects.fields import Object

from e2e.cluster import ControlPlane
from tests.support.tasks import beside

NAMESPACES = Resource("v1", "Namespace", "namespaces", namespaced=False)
CONFIG_MAPS = Resource("v1", "ConfigMap", "configmaps")
QUOTAS = Resource("v1", "ResourceQuota", "resourcequotas")
OWNER = {
    "apiVersion": "tailbound.dev/v1alpha1",
    "kind": "InferenceService",
    "name": "churn",
    "uid": "11111111-1111-1111-1111-111111111111",
    "controller": True,
}
_NUMBER = itertools.count(1)


@pytest.fixture
async def cluster(control_plane: ControlPlane) -> AsyncIterator[AioCluster]:
    configuration = await load_configuration({"KUBECONFIG": str(control_plane.kubeconfig)})
    made = AioCluster(configuration)
    yield made
    await made.close()
    # aiohttp ends TLS connections in the background; the event loop must not be gone before.
    await asyncio.sleep(0.25)


@pytest.fixture
async def namespace(cluster: AioCluster) -> str:
    name = f"transport-{next(_NUMBER)}"
    await cluster.insert(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def config_map(namespace: str, name: str = "mine", owner: Any = OWNER, **data: str) -> dict[str, Any]:
    meta: dict[str, Any] = {"namespace": namespace, "name": name}
    if owner is not None:
        meta["ownerReferences"] = [owner]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def guarded(body: dict[str, Any], stored: Object) -> dict[str, Any]:
    guards = {key: stored["metadata"][key] for key in ("uid", "resourceVersion")}
    return {**body, "metadata": {**body["metadata"], **guards}}


async def test_absent_object_is_none(cluster: AioCluster, namespace: str) -> None:
    assert await cluster.get(CONFIG_MAPS, namespace, "nothing") is None


async def test_created_object_can_be_applied_and_loses_what_the_apply_leaves_out(
    cluster: AioCluster, namespace: str
) -> None:
    stored = await cluster.create(CONFIG_MAPS, config_map(namespace, a="1", b="2"))
    applied = await cluster.apply(CONFIG_MAPS, guarded(config_map(namespace, a="3"), stored))
    assert applied["data"] == {"a": "3"}


async def test_a_text_that_utf_8_cannot_hold_is_written_as_far_as_it_can_be(
    cluster: AioCluster, namespace: str
) -> None:
    """Pods and templates can bring one: JSON escapes a lone surrogate."""
    stored = await cluster.insert(CONFIG_MAPS, config_map(namespace, a="x\ud800é"))
    assert stored["data"] == {"a": "x\ufffdé"}


async def test_every_character_is_stored_as_it_is(cluster: AioCluster, namespace: str) -> None:
    """What is applied is read as YAML, where some characters are line breaks and others are refused."""
    text = "".join(map(chr, (*range(0x3100), 0xD7FF, *range(0xE000, 0xE010), *range(0xFEF0, 0x10010))))
    created = await cluster.create(CONFIG_MAPS, config_map(namespace, a=text))
    assert created["data"] == {"a": text}
    applied = await cluster.apply(CONFIG_MAPS, guarded(config_map(namespace, a=f"-{text}"), created))
    assert applied["data"] == {"a": f"-{text}"}


async def test_foreign_object_is_not_created_over(cluster: AioCluster, namespace: str) -> None:
    foreign = await cluster.insert(CONFIG_MAPS, config_map(namespace, owner=None, theirs="1"))
    with pytest.raises(NameConflict, match="ConfigMap mine exists and belongs to no controller"):
        await cluster.create(CONFIG_MAPS, config_map(namespace, ours="1"))
    assert await cluster.get(CONFIG_MAPS, namespace, "mine") == foreign


async def test_object_of_another_controller_is_a_name_conflict_that_names_it(
    cluster: AioCluster, namespace: str
) -> None:
    other = {**OWNER, "kind": "Widget", "name": "gadget", "uid": "22222222-2222-2222-2222-222222222222"}
    await cluster.insert(CONFIG_MAPS, config_map(namespace, owner=other))
    with pytest.raises(NameConflict, match="Widget gadget"):
        await cluster.create(CONFIG_MAPS, config_map(namespace))


async def test_own_object_that_exists_already_is_a_conflict(cluster: AioCluster, namespace: str) -> None:
    await cluster.create(CONFIG_MAPS, config_map(namespace))
    with pytest.raises(Conflict):
        await cluster.create(CONFIG_MAPS, config_map(namespace))


async def test_of_clients_that_create_the_same_name_at_once_one_does_and_the_others_learn_whose_it_is(
    cluster: AioCluster, namespace: str
) -> None:
    owners = [{**OWNER, "name": f"owner-{number}", "uid": f"{number}" * 8} for number in range(8)]
    answers = await asyncio.gather(
        *(cluster.create(CONFIG_MAPS, config_map(namespace, owner=owner)) for owner in owners),
        return_exceptions=True,
    )
    created = [each for each in answers if isinstance(each, dict)]
    assert len(created) == 1
    assert [type(each) for each in answers if each not in created] == [NameConflict] * 7
    assert await cluster.get(CONFIG_MAPS, namespace, "mine") == created[0]


async def test_a_dry_run_is_validated_and_stores_nothing(cluster: AioCluster, namespace: str) -> None:
    stored = await cluster.create(CONFIG_MAPS, config_map(namespace, a="1"))
    await cluster.apply(CONFIG_MAPS, guarded(config_map(namespace, a="2"), stored), dry_run=True)
    assert await cluster.get(CONFIG_MAPS, namespace, stored["metadata"]["name"]) == stored
    bad = guarded(config_map(namespace, **{"no key": "3"}), stored)
    with pytest.raises(Terminal):
        await cluster.apply(CONFIG_MAPS, bad, dry_run=True)


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_apply_to_another_object_or_state_than_decided_on_is_refused(
    cluster: AioCluster, namespace: str, field: str
) -> None:
    body = guarded(config_map(namespace), await cluster.create(CONFIG_MAPS, config_map(namespace)))
    body["metadata"][field] = {"uid": "33333333-3333-3333-3333-333333333333", "resourceVersion": "1"}[field]
    with pytest.raises(Conflict):
        await cluster.apply(CONFIG_MAPS, body)


async def test_apply_without_guards_is_a_mistake_of_the_caller(cluster: AioCluster, namespace: str) -> None:
    with pytest.raises(ValueError, match=r"needs metadata\.uid and resourceVersion"):
        await cluster.apply(CONFIG_MAPS, config_map(namespace))


async def test_apply_to_an_object_that_is_gone_creates_nothing(cluster: AioCluster, namespace: str) -> None:
    stored = await cluster.create(CONFIG_MAPS, config_map(namespace))
    meta = stored["metadata"]
    await cluster.delete(CONFIG_MAPS, namespace, "mine", meta["uid"], meta["resourceVersion"])
    with pytest.raises(Conflict):
        await cluster.apply(CONFIG_MAPS, guarded(config_map(namespace), stored))
    assert await cluster.get(CONFIG_MAPS, namespace, "mine") is None


async def test_delete_takes_only_the_state_that_was_decided_on(cluster: AioCluster, namespace: str) -> None:
    stored = await cluster.create(CONFIG_MAPS, config_map(namespace))
    newer = await cluster.apply(CONFIG_MAPS, guarded(config_map(namespace, a="1"), stored))
    meta = stored["metadata"]
    with pytest.raises(Conflict):
        await cluster.delete(CONFIG_MAPS, namespace, "mine", meta["uid"], meta["resourceVersion"])
    with pytest.raises(Conflict):
        await cluster.delete(CONFIG_MAPS, namespace, "mine", "another", newer["metadata"]["resourceVersion"])
    version = newer["metadata"]["resourceVersion"]
    assert await cluster.delete(CONFIG_MAPS, namespace, "mine", meta["uid"], version) is None
    assert await cluster.delete(CONFIG_MAPS, namespace, "mine", meta["uid"], version) is None


async def test_foreground_deletion_returns_the_object_that_waits(cluster: AioCluster, namespace: str) -> None:
    template = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "server", "image": "i"}]},
    }
    stored = await cluster.create(
        DEPLOYMENTS,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"namespace": namespace, "name": "mine", "ownerReferences": [OWNER]},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template},
        },
    )
    meta = stored["metadata"]
    left = await cluster.delete(
        DEPLOYMENTS, namespace, "mine", meta["uid"], meta["resourceVersion"], "Foreground"
    )
    assert left is not None
    assert left["metadata"]["deletionTimestamp"]


async def test_invalid_object_is_terminal_and_quotes_the_field(cluster: AioCluster, namespace: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": "mine", "ownerReferences": [OWNER]},
        "spec": {"ports": [{"port": 99999999}]},
    }
    with pytest.raises(Terminal, match=r"spec\.ports"):
        await cluster.create(SERVICES, body)


async def test_quota_is_told_apart(cluster: AioCluster, namespace: str) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"namespace": namespace, "name": "none"},
        "spec": {"hard": {"count/configmaps": "0"}},
    }
    stored = await cluster.insert(QUOTAS, quota)
    status = {"hard": {"count/configmaps": "0"}, "used": {"count/configmaps": "0"}}
    await cluster.replace_status(QUOTAS, {**stored, "status": status})
    async with asyncio.timeout(20):
        while True:
            try:
                await cluster.create(CONFIG_MAPS, config_map(namespace, name=f"try-{next(_NUMBER)}"))
            except NotAdmitted as refused:
                assert "exceeded quota: none" in str(refused)
                return
            except Transient:
                await asyncio.sleep(0.1)


async def test_what_a_role_does_not_allow_is_transient(
    cluster: AioCluster, namespace: str, control_plane: ControlPlane
) -> None:
    kubeconfig = control_plane.kubeconfig_for("nobody")
    nobody = AioCluster(await load_configuration({"KUBECONFIG": str(kubeconfig)}))
    try:
        with pytest.raises(Transient, match="cannot patch resource"):
            await nobody.create(CONFIG_MAPS, config_map(namespace))
    finally:
        await nobody.close()


async def test_api_server_that_is_not_there_is_transient(control_plane: ControlPlane) -> None:
    configuration = await load_configuration({"KUBECONFIG": str(control_plane.kubeconfig)})
    configuration.host = "https://127.0.0.1:1"
    away = AioCluster(configuration, timeout_seconds=1)
    try:
        with pytest.raises(Transient):
            await away.get(CONFIG_MAPS, "default", "mine")
    finally:
        await away.close()


async def test_api_server_that_does_not_answer_is_given_up_in_time(control_plane: ControlPlane) -> None:
    configuration = await load_configuration({"KUBECONFIG": str(control_plane.kubeconfig)})
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections wait there for ever
        configuration.host = f"http://127.0.0.1:{silent.getsockname()[1]}"
        cluster = AioCluster(configuration, timeout_seconds=0.3)
        try:
            async with asyncio.timeout(5):
                with pytest.raises(Transient, match="no answer within"):
                    await cluster.get(CONFIG_MAPS, "default", "mine")
        finally:
            await cluster.close()


async def test_list_over_several_pages_holds_everything(
    cluster: AioCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailbound.kube.aio.PAGE_SIZE", 3)
    for index in range(8):
        await cluster.create(CONFIG_MAPS, config_map(namespace, name=f"mine-{index}"))
    listing = await cluster.list(CONFIG_MAPS, namespace)
    names = [key_of(item)[1] for item in listing.items if key_of(item)[1].startswith("mine")]
    assert names == [f"mine-{index}" for index in range(8)]
    assert {item["kind"] for item in listing.items} == {"ConfigMap"}


async def test_list_of_a_kind_without_a_crd_says_so(cluster: AioCluster) -> None:
    with pytest.raises(Transient, match="is its CRD installed"):
        await cluster.list(Resource("nowhere.test/v1", "Thing", "things"))


async def test_watch_tells_changes_and_ends_in_time(cluster: AioCluster, namespace: str) -> None:
    listing = await cluster.list(CONFIG_MAPS, namespace)
    stored = await cluster.create(CONFIG_MAPS, config_map(namespace))
    meta = stored["metadata"]
    await cluster.delete(CONFIG_MAPS, namespace, "mine", meta["uid"], meta["resourceVersion"])
    events = cluster.watch(CONFIG_MAPS, listing.resource_version, namespace, timeout_seconds=2)
    seen = [(event.type, key_of(event.object)[1]) async for event in events if event.type != "BOOKMARK"]
    assert [each for each in seen if each[1] == "mine"] == [("ADDED", "mine"), ("DELETED", "mine")]


@pytest.mark.parametrize("within_the_stream", [True, False])
async def test_watch_from_a_version_that_is_too_old_is_expired(within_the_stream: bool) -> None:
    """The API server says so in either way; it takes minutes to grow old enough for it."""
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}

    async def watch(_: web.Request) -> web.Response:
        body = {"type": "ERROR", "object": gone} if within_the_stream else gone
        return web.json_response(body, status=200 if within_the_stream else 410)

    application = web.Application()
    application.add_routes([web.get("/api/v1/namespaces/ns/configmaps", watch)])
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    cluster = AioCluster(Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}"))
    try:
        with pytest.raises(Expired):
            async for _ in cluster.watch(CONFIG_MAPS, "1", "ns", timeout_seconds=5):
                pass
    finally:
        await cluster.close()
        await runner.cleanup()


async def test_informer_follows_and_finds_what_no_watch_told(cluster: AioCluster, namespace: str) -> None:
    store = ObjectStore()
    ghost = config_map(namespace, name="ghost")
    ghost["metadata"] |= {"uid": "ghost", "resourceVersion": "1"}
    store.upsert(ghost)
    informer = Informer(cluster, CONFIG_MAPS, store, namespace=namespace, relist_seconds=1.5)
    async with beside(informer.run()):
        await informer.synced.wait()
        assert store.get(namespace, "ghost") is None
        stored = await cluster.create(CONFIG_MAPS, config_map(namespace))
        await _until(lambda: store.get(namespace, "mine") is not None)
        store.upsert(ghost)
        await _until(lambda: store.get(namespace, "ghost") is None)
        meta = stored["metadata"]
        await cluster.delete(CONFIG_MAPS, namespace, "mine", meta["uid"], meta["resourceVersion"])
        await _until(lambda: store.get(namespace, "mine") is None)


async def _until(holds: Any) -> None:
    async with asyncio.timeout(15):
        while not holds():  # noqa: ASYNC110 - a value that another task changes
            await asyncio.sleep(0.02)
