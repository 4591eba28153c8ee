"""`KubeClient` over aiohttp, with the authentication and TLS of kubernetes.aio, and dicts for models.

Its own client would encode each body with `json`, which takes a fifth of the CPU time of a request.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import aiohttp
import orjson
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from tailbound.api.names import FIELD_MANAGER
from tailbound.kube.errors import Conflict, KubeError, NameConflict, NotServed, Transient, error_for, refusal
from tailbound.kube.objects import holder_of, key_of, slim, without_managed_fields
from tailbound.kube.protocol import Listing, Propagation, WatchEvent
from tailbound.kube.resources import EVENTS, TOKEN_REVIEWS, Resource
from tailbound.kube.sharing import EqualParts
from tailbound.objects.fields import Object, child, text
from tailbound.objects.metadata import KubernetesObject

# A page is parsed in one turn of the event loop.
PAGE_SIZE = 250
# A page has hundreds of KB, and aiohttp would stop reading it each 128 KiB.
READ_BYTES = 2**21
CONNECT_TIMEOUT_SECONDS = 5.0
# The API server sends a bookmark about once a minute: a stream that is silent for longer is dead.
SILENCE_SECONDS = 90.0
APPLY = "application/apply-patch+yaml"
JSON = "application/json"
# No object has this version, the first of an empty etcd: an apply with it changes nothing that is there.
_NO_VERSION = "1"
_AS_OURSELVES: Final = MappingProxyType({"fieldManager": FIELD_MANAGER})
_NOT_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


class _Request(NamedTuple):
    """A request to the API server. query: values that are empty are left out."""

    method: str
    path: str
    query: Mapping[str, str] = MappingProxyType({})
    body: Any = None
    content_type: str = JSON

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class AioCluster:
    """One connection pool to one API server. Safe for many tasks of one event loop.

    `timeout_seconds` bounds every request except a watch, from connecting to the last byte.
    """

    def __init__(
        self, configuration: Configuration, *, timeout_seconds: float = 10.0, user_agent: str = "tailbound"
    ) -> None:
        self._configuration = configuration
        self._tls = RESTClientObject(configuration).ssl_context
        self._session: aiohttp.ClientSession | None = None
        self._timeout_seconds = timeout_seconds
        self._user_agent = user_agent
        self._page_turns = asyncio.Lock()
        """Held by the page of a list that is parsed, one in a turn of the event loop: a start lists all kinds
        at the same time, and their pages come together."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        try:
            return await self._json(_Request("GET", resource.path(namespace, name)))
        except _NotFound:
            return None

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing:
        items: list[Object] = []
        version = ""
        async for page in self.pages(resource, namespace, label_selector, field_selector):
            items += page.items
            version = page.resource_version
        return Listing(tuple(items), version)

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[Listing]:
        query = {"labelSelector": label_selector, "fieldSelector": field_selector, "limit": str(PAGE_SIZE)}
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        while True:
            try:
                text = await self._text(_Request("GET", resource.path(namespace), query))
            except _NotFound as error:
                raise NotServed(
                    f"{resource.plural} cannot be listed, is its CRD installed? {error}"
                ) from error
            async with self._page_turns:
                await asyncio.sleep(0)  # others have their turn between two pages
                page = _parsed(without_managed_fields(text), f"list of {resource.plural}")
                meta, parts = child(page, "metadata"), EqualParts()
                items = tuple(slim({**parts.shared(item), **kind}) for item in page.get("items") or ())
            yield Listing(items, str(meta["resourceVersion"]))
            if not meta.get("continue"):
                return
            query["continue"] = str(meta["continue"])

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, int(timeout_seconds))),
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        timeout = aiohttp.ClientTimeout(
            total=timeout_seconds + 10, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=SILENCE_SECONDS
        )
        try:
            response = await self._send(_Request("GET", resource.path(namespace), query), timeout)
            async with response:
                async for line in _lines(response.content):
                    yield _watch_event(orjson.loads(without_managed_fields(line)))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Transient(f"watch of {resource.plural} broke: {str(error) or type(error)}") from error

    async def create(self, resource: Resource, body: Object) -> Object:
        namespace, name = key_of(body)
        absent = {**body, "metadata": {**child(body, "metadata"), "resourceVersion": _NO_VERSION}}
        try:
            return await self._apply(resource.path(namespace, name), absent)
        except Conflict:
            existing = await self.get(resource, namespace, name)
            if existing is None:
                raise
            raise _taken(resource, body, existing) from None

    async def apply(self, resource: Resource, body: Object, *, dry_run: bool = False) -> Object:
        namespace, name = key_of(body)
        _require_guards(body)
        return await self._apply(resource.path(namespace, name), body, dry_run=dry_run)

    async def replace_status(self, resource: Resource, body: Object) -> Object:
        namespace, name = key_of(body)
        _require_guards(body)
        path = resource.path(namespace, name, "status")
        return await self._json(_Request("PUT", path, _AS_OURSELVES, body))

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        uid: str,
        resource_version: str,
        propagation: Propagation = "Background",
    ) -> Object | None:
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
            "preconditions": {"uid": uid, "resourceVersion": resource_version},
        }
        try:
            answer = await self._json(_Request("DELETE", resource.path(namespace, name), body=options))
        except _NotFound:
            return None
        return answer if KubernetesObject(answer).terminating else None

    async def insert(self, resource: Resource, body: Object) -> Object:
        namespace, _ = key_of(body)
        return await self._json(_Request("POST", resource.path(namespace), _AS_OURSELVES, body))

    async def replace(self, resource: Resource, body: Object) -> Object:
        namespace, name = key_of(body)
        return await self._json(_Request("PUT", resource.path(namespace, name), _AS_OURSELVES, body))

    async def create_event(self, body: Object) -> None:
        await self.insert(EVENTS, body)

    async def review_token(self, token: str, audiences: Sequence[str]) -> Object:
        review = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "spec": {"token": token, "audiences": list(audiences)},
        }
        answer = await self._json(_Request("POST", TOKEN_REVIEWS.path(), body=review))
        return dict(child(answer, "status"))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _apply(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        # managedFields may not be sent with an apply; everything else goes as it is.
        meta = {key: value for key, value in child(body, "metadata").items() if key != "managedFields"}
        query = {**_AS_OURSELVES, "force": "true", "dryRun": "All" if dry_run else ""}
        return await self._json(_Request("PATCH", path, query, {**body, "metadata": meta}, APPLY))

    async def _json(self, request: _Request) -> Object:
        return _parsed(await self._text(request), str(request))

    async def _text(self, request: _Request) -> bytes:
        timeout = aiohttp.ClientTimeout(
            total=self._timeout_seconds, sock_connect=min(CONNECT_TIMEOUT_SECONDS, self._timeout_seconds)
        )
        try:
            response = await self._send(request, timeout)
            async with response:
                return await response.read()
        except TimeoutError as error:
            raise Transient(f"{request}: no answer within {self._timeout_seconds:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Transient(f"{request}: {str(error) or type(error).__name__}") from error

    async def _send(self, request: _Request, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        configuration = self._configuration
        filled = {key: value for key, value in request.query.items() if value}
        url = f"{configuration.host}{request.path}" + (f"?{urlencode(filled)}" if filled else "")
        headers = {"Accept": JSON, "Content-Type": request.content_type, "User-Agent": self._user_agent}
        authorization = await configuration.get_api_key_with_prefix("BearerToken")
        if authorization:
            headers["Authorization"] = authorization
        response = await self._pool().request(
            request.method,
            url,
            headers=headers,
            data=None if request.body is None else _encoded(request.body),
            timeout=limits,
            proxy=configuration.proxy,
            proxy_headers=configuration.proxy_headers,
            server_hostname=configuration.tls_server_name,
        )
        if response.status >= 400:
            async with response:
                raise _error(response.status, await response.read(), response.headers.get("Retry-After"))
        return response

    def _pool(self) -> aiohttp.ClientSession:
        """The connections. They belong to the event loop of the first request."""
        if self._session is None:
            # Proxies and a .netrc of the environment would be read again for each request.
            connector = aiohttp.TCPConnector(ssl=self._tls, limit=self._configuration.connection_pool_maxsize)
            self._session = aiohttp.ClientSession(connector=connector, read_bufsize=READ_BYTES)
        return self._session


class _NotFound(Conflict):
    """404: harmless when reading or deleting, else what the write spoke of is gone."""


def _error(status: int, text: bytes, retry_after: str | None) -> KubeError:
    try:
        body: Any = orjson.loads(text)
    except ValueError:
        body = text.decode(errors="replace")
    answer = refusal(status, body, retry_after)
    return _NotFound(answer.message) if status == 404 else error_for(answer)


def _encoded(body: Object) -> bytes:
    """The body as JSON that is YAML as well, as which the API server reads what is applied.

    YAML takes some characters for line breaks and refuses others unless they are escaped, and knows no pairs
    of surrogates. A lone surrogate, which only JSON can hold, is left to `json`, which escapes it.
    """
    try:
        text = orjson.dumps(body)
    except TypeError:
        return json.dumps(body).encode()
    if text.isascii() and b"\x7f" not in text:
        return text
    return _NOT_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text.decode()).encode()


def _parsed(text: bytes, request: str) -> Object:
    try:
        answer: Object = orjson.loads(text)
    except ValueError as error:
        raise Transient(f"{request}: {error}") from error
    return answer


def _watch_event(line: Any) -> WatchEvent:
    if line["type"] == "ERROR":
        raise error_for(refusal(int(line["object"].get("code") or 500), line["object"], None))
    return WatchEvent(line["type"], slim(line["object"]))


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream, however long one is: aiohttp's own reader refuses those beyond 128 KiB."""
    parts: list[bytes] = []
    async for chunk in content.iter_any():
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            yield b"".join((*parts, end))
            parts.clear()
        if rest:
            parts.append(rest)
    if parts:
        yield b"".join(parts)


def _taken(resource: Resource, body: Object, existing: Object) -> KubeError:
    name = key_of(body)[1]
    wanted, present = KubernetesObject(body).controller, KubernetesObject(existing).controller
    if wanted is not None and (present is None or present.uid != wanted.uid):
        return NameConflict(resource.kind, name, holder_of(existing))
    return Conflict(f"{resource.kind} {name} exists already")


def _require_guards(body: Object) -> None:
    missing = [field for field in ("uid", "resourceVersion") if not text(child(body, "metadata"), field)]
    if missing:
        raise ValueError(
            f"a write of {body.get('kind')} {key_of(body)[1]} needs metadata.{' and '.join(missing)}"
        )
