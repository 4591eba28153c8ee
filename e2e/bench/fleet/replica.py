"""A stand-in for the API server of a large fleet: shows one settled service of a real one many times over.

Lists and watches of services and their children are answered here, in pages and with managedFields as the
API server would; everything else is passed on to the real one. A write to one of the copies is answered with
404, and counts as a write of the operator. The operator talks to it without TLS.
"""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration
from tailbound.controller.stores import OF_EACH_SERVICE
from tailbound.kube.resources import TOKEN_REVIEWS, Resource

_NUMBER, _UID = "@number@", "@uid@"
_BOOKMARK_SECONDS = 30.0
_PLAIN = {"Accept-Encoding": "identity"}
_PASSED_ON = ("Accept", "Content-Type")
_MOST_WRITTEN = 5
OPERATOR_ACCOUNT = "system:serviceaccount:fleet:operator"


@dataclass(frozen=True)
class Kind:
    """The objects of one kind that belong to one service, as texts with places for number and uid."""

    resource: Resource
    version: str
    templates: tuple[str, ...]

    @classmethod
    async def of(cls, session: aiohttp.ClientSession, server: str, resource: Resource, service: str) -> Self:
        """Read them from the API server; those of other services are left out."""
        async with session.get(f"{server}{resource.path()}") as answer:
            listing: dict[str, Any] = json.loads(await answer.read())
        texts = [json.dumps(each, separators=(",", ":")) for each in listing["items"]]
        belongs = re.compile(rf"\b{service}\b")
        return cls(
            resource,
            str(listing["metadata"]["resourceVersion"]),
            tuple(_template(text, service) for text in texts if belongs.search(text)),
        )

    def page(self, first: int, end: int, of: int) -> str:
        """A part of the list of so many services."""
        items = (text for number in range(first, min(end, of)) for text in self._copies(number))
        meta = {"resourceVersion": self.version, **({"continue": str(end)} if end < of else {})}
        head = {
            "apiVersion": self.resource.api_version,
            "kind": f"{self.resource.kind}List",
            "metadata": meta,
        }
        return f'{json.dumps(head)[:-1]},"items":[{",".join(items)}]}}'

    def _copies(self, number: int) -> Iterable[str]:
        return (
            template.replace(_NUMBER, str(number)).replace(_UID, f"{number:08x}")
            for template in self.templates
        )


def _template(text: str, service: str) -> str:
    stem = service.rstrip("0123456789")
    named = re.sub(rf"\b{service}\b", f"{stem}{_NUMBER}", text)
    return re.sub(r'"uid":"[0-9a-f]{8}-', f'"uid":"{_UID}-', named)


@dataclass(frozen=True)
class Replica:
    """The fleet that is shown."""

    kinds: dict[str, Kind]
    """The objects that are shown, by the path of their list."""
    services: int
    server: str
    """The real API server."""
    session: aiohttp.ClientSession
    written: list[str] = field(default_factory=list)
    """The first writes of services and their children, as method and path."""

    @classmethod
    @asynccontextmanager
    async def serving(
        cls, configuration: Configuration, service: str, services: int, folder: Path
    ) -> AsyncIterator[tuple[Self, Path]]:
        """Show `service` so many times, numbered from 0, in its place; gives the kubeconfig as well."""
        connector = aiohttp.TCPConnector(ssl=_tls(configuration))
        async with aiohttp.ClientSession(connector=connector, headers=_PLAIN) as session:
            server = configuration.host
            kinds = [await Kind.of(session, server, each, service) for each in OF_EACH_SERVICE]
            by_path = {kind.resource.path(): kind for kind in kinds}
            replica = cls(by_path, services, server, session)
            application = web.Application()
            application.router.add_route("*", "/{path:.*}", replica._answer_while_asked)
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            kubeconfig = folder / "replica.kubeconfig"
            kubeconfig.write_text(_kubeconfig(runner.addresses[0][1], configuration.ssl_ca_cert))
            try:
                yield replica, kubeconfig
            finally:
                await runner.cleanup()

    async def _answer_while_asked(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ConnectionResetError:  # the operator has ended
            return web.Response(status=503)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == TOKEN_REVIEWS.path():
            return await _reviewed(request)
        kind = self.kinds.get(request.path)
        if kind is None or request.method != "GET":
            return await self._passed_on(request)
        if request.query.get("watch"):
            return await self._watched(request, kind)
        first = int(request.query.get("continue") or 0)
        # The limit counts objects; of most kinds there is one for each service.
        count = int(request.query.get("limit") or 0) // max(1, len(kind.templates)) or self.services
        return web.Response(
            text=kind.page(first, first + count, self.services), content_type="application/json"
        )

    async def _watched(self, request: web.Request, kind: Kind) -> web.StreamResponse:
        """A watch in which nothing happens but bookmarks."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        meta = {"resourceVersion": kind.version, "creationTimestamp": None}
        about = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, "metadata": meta}
        while True:
            await response.write(json.dumps({"type": "BOOKMARK", "object": about}).encode() + b"\n")
            await asyncio.sleep(_BOOKMARK_SECONDS)

    def _note(self, request: web.Request) -> None:
        shown = {kind.resource.plural for kind in self.kinds.values()}
        if len(self.written) < _MOST_WRITTEN and not shown.isdisjoint(request.path.split("/")):
            self.written.append(f"{request.method} {request.path}")

    async def _passed_on(self, request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            self._note(request)
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        async with self.session.request(
            request.method,
            f"{self.server}{request.rel_url}",
            headers=headers,
            data=await request.read() or None,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as answer:
            response = web.StreamResponse(
                status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]}
            )
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return response


async def _reviewed(request: web.Request) -> web.Response:
    """Whoever asks a gateway is the operator."""
    audiences = (await request.json())["spec"]["audiences"]
    user = {"username": OPERATOR_ACCOUNT}
    return web.json_response({"status": {"authenticated": True, "user": user, "audiences": audiences}})


def _tls(configuration: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    context.load_cert_chain(str(configuration.cert_file), configuration.key_file)
    return context


def _kubeconfig(port: int, authority: str | None) -> str:
    # A pod's client has an authority, too: without one it would load all those of the machine.
    cluster = {"server": f"http://127.0.0.1:{port}", "certificate-authority": authority}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "replica", "cluster": cluster}],
            "users": [{"name": "bench", "user": {"token": "bench"}}],
            "contexts": [{"name": "bench", "context": {"cluster": "replica", "user": "bench"}}],
            "current-context": "bench",
        }
    )
