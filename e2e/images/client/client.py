"""Commands of the client pod.

    client serve       the pod's own process: sends what it is asked to
    client load URL    bounded load, for `kubectl exec`: see load.py

POST /request?method=METHOD&url=URL&timeout=SECONDS&header=NAME:VALUE sends one request with the body that it
came with, and answers {"status", "headers", "body", "seconds"} or {"error", "seconds"}.

POST /call?url=URL&timeout=SECONDS&answers=N makes a gRPC call with the body as its message (see rpc.py), and
answers {"code", "details", "messages"} after N messages at most.

The body of a load comes from stdin; its result goes to stdout as one JSON object.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from e2e.images.client import load

PORT = 8080
MOST_BYTES = 2**30
"""The longest body that is sent, in bytes."""


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line; the help texts are its documentation."""
    parser = argparse.ArgumentParser(prog="client")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve")
    many = commands.add_parser("load")
    many.add_argument("url")
    many.add_argument("--header", action="append", default=[], metavar="NAME:VALUE")
    many.add_argument("--timeout", type=float, default=10, help="seconds for one request")
    many.add_argument("--body", action="store_true", help="send stdin as the body")
    many.add_argument("--seconds", type=float, required=True, help="the longest that the load lasts")
    many.add_argument("--workers", type=int, help="closed loop with this many senders")
    many.add_argument("--rate", type=float, help="open loop with this many requests a second")
    many.add_argument(
        "--rise",
        type=float,
        nargs=2,
        metavar=("RATE", "SECONDS"),
        help="begin with RATE requests a second, and reach --rate after SECONDS",
    )
    many.add_argument("--within", type=float, default=10, help="seconds after which an answer is late")
    many.add_argument("--pause", type=float, default=0, help="seconds before the last byte of each body")
    many.add_argument("--new-connections", action="store_true", help="one connection per request")
    many.add_argument("--stop-file", type=Path, help="end early once this file exists")
    return parser.parse_args(argv)


def headers_of(pairs: list[str]) -> dict[str, str]:
    """NAME:VALUE pairs as a mapping; a body is JSON unless they say otherwise."""
    headers = {"Content-Type": "application/json"}
    for pair in pairs:
        name, _, value = pair.partition(":")
        headers[name.strip()] = value.strip()
    return headers


async def request(
    method: str, url: str, headers: dict[str, str], body: bytes | None, timeout_seconds: float
) -> dict[str, Any]:
    """One request, redirects not followed and certificates not verified."""
    started = time.monotonic()
    timeout = aiohttp.ClientTimeout(total=timeout_seconds)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=False)) as session,
            session.request(method, url, headers=headers, data=body, allow_redirects=False) as response,
        ):
            text = (await response.read()).decode(errors="replace")
            answer: dict[str, Any] = {
                "status": response.status,
                "headers": dict(response.headers),
                "body": text,
            }
    except (aiohttp.ClientError, OSError) as error:  # a time-out is an OSError
        answer = {"error": f"{type(error).__name__}: {error}"}
    return answer | {"seconds": round(time.monotonic() - started, 4)}


async def send(asked: web.Request) -> web.Response:
    """Send the request that is asked for, once."""
    query = asked.query
    headers, body = headers_of(query.getall("header", [])), await asked.read() or None
    return web.json_response(
        await request(query["method"], query["url"], headers, body, float(query["timeout"]))
    )


async def call(asked: web.Request) -> web.Response:
    """Make the gRPC call that is asked for, once."""
    from e2e.images.client import rpc  # gRPC takes seconds to import in a small pod

    query = asked.query
    message, answers = await asked.read(), int(query["answers"])
    return web.json_response(await rpc.call(query["url"], message, float(query["timeout"]), answers))


async def healthy(_: web.Request) -> web.Response:
    """The answer to a readiness probe."""
    return web.Response(text="ok")


def application() -> web.Application:
    """What `client serve` runs."""
    made = web.Application(client_max_size=MOST_BYTES)
    made.router.add_post("/request", send)
    made.router.add_post("/call", call)
    made.router.add_get("/_healthz", healthy)
    return made


def main(argv: list[str]) -> int:
    """Run one command; the exit status is 0 whatever the server answered."""
    arguments = parse(argv)
    if arguments.command == "serve":
        web.run_app(application(), port=PORT, access_log=None, print=None)
        return 0
    plan = load.Plan(
        url=arguments.url,
        body=sys.stdin.buffer.read() if arguments.body else b"",
        headers=headers_of(arguments.header),
        seconds=arguments.seconds,
        timeout_seconds=arguments.timeout,
        workers=arguments.workers,
        rate=arguments.rate,
        within_seconds=arguments.within,
        pause_seconds=arguments.pause,
        rise=None if arguments.rise is None else load.Rise(*arguments.rise),
        keep_alive=not arguments.new_connections,
        stop_file=arguments.stop_file,
    )
    print(json.dumps(asyncio.run(load.run(plan))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
