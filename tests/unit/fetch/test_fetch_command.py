"""`tailbound fetch` as a process: exit status, termination message, log lines, signals."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tailbound.api.device_memory import PodMemory
from tailbound.api.quantities import Quantity
from tailbound.api.runtime_contract import FetchEnv, Resolution, Termination, TerminationReason
from tailbound.fetch.command import termination_bytes

from tests.unit.fetch.faulty_store import FaultyStore, cut_after, running, stall_after, status

CONTENT = b"model" * 100_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def store() -> Iterator[FaultyStore]:
    with running(CONTENT) as store:
        yield store


@pytest.fixture
def termination_log(tmp_path: Path) -> Path:
    path = tmp_path / "termination-log"
    path.touch()
    return path


def command(store: FaultyStore, folder: Path, sha256: str = SHA256) -> list[str]:
    output, log = str(folder / "model.onnx"), str(folder / "termination-log")
    arguments = ["--uri", store.url(), "--sha256", sha256, "--output", output, "--termination-log", log]
    return [sys.executable, "-m", "tailbound.main", "fetch", *arguments]


DIGEST_HELP, HOLD_HELP = (
    [sys.executable, "-m", "tailbound.main", subcommand, "--help"] for subcommand in ("digest", "hold")
)


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **extra}


def run(arguments: list[str], **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, env=environment(**extra), capture_output=True, text=True, timeout=60, check=False
    )


def test_success_exits_0_and_says_what_was_fetched(
    store: FaultyStore, tmp_path: Path, termination_log: Path
) -> None:
    done = run(command(store, tmp_path), TAILBOUND_FETCH_ALLOWED_HOSTS="localhost")
    assert (done.returncode, done.stderr) == (0, "")
    ended = Termination.read(termination_log.read_bytes())
    assert ended.reason is TerminationReason.FETCHED
    assert "500.0 kB (500000 bytes)" in ended.message
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [lines[0]["event"], lines[-1]["event"]] == ["starting", "ended"]
    assert (tmp_path / "model.onnx").read_bytes() == CONTENT


def test_containers_of_serving_pods_load_neither_models_nor_clients(
    store: FaultyStore, tmp_path: Path, termination_log: Path
) -> None:
    """pydantic alone is half of the start of a fetch, and each pod waits for it."""
    devices = PodMemory("gpu", 1, Quantity.parse("40G")).written()
    for arguments in (command(store, tmp_path), DIGEST_HELP, HOLD_HELP):
        listed = [sys.executable, "-X", "importtime", *arguments[1:]]
        allowed = {FetchEnv.ALLOWED_HOSTS: "localhost", FetchEnv.DEVICE_MEMORY: devices}
        done = run(listed, **{name.value: text for name, text in allowed.items()})
        assert done.returncode == 0, done.stdout
        loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
        assert "tailbound" in loaded
        assert not loaded & {"pydantic", "pydantic_core", "kubernetes", "kopf", "aiohttp", "grpc", "yaml"}
    assert Termination.read(termination_log.read_bytes()).reason is TerminationReason.FETCHED


def test_pods_of_other_users_can_go_on_with_what_one_left_in_the_cache(
    store: FaultyStore, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    store.replies.append(cut_after(1000))
    store.replies.append(status(404))
    left = run([*command(store, tmp_path), "--cache", str(shared)], TAILBOUND_FETCH_ALLOWED_HOSTS="localhost")
    assert (left.returncode, left.stderr) == (1, "")
    (own,) = shared.glob("filling-*")
    modes = {path.relative_to(shared).as_posix(): path.stat().st_mode & 0o070 for path in shared.rglob("*")}
    assert modes == {
        "lock": 0o060,
        own.name: 0o070,
        f"{own.name}/model.onnx.part": 0o060,
        f"{own.name}/model.onnx.part.json": 0o060,
    }


@pytest.mark.parametrize(
    ("allowed", "denied", "code", "reason"),
    [
        ("localhost", "", 404, TerminationReason.SOURCE_NOT_FOUND),
        ("localhost", "", 403, TerminationReason.SOURCE_FORBIDDEN),
        ("", "", 200, TerminationReason.ADDRESS_DENIED),
        ("", "nonsense", 200, TerminationReason.ADDRESS_DENIED),
    ],
)
def test_failure_exits_1_and_says_why(
    store: FaultyStore,
    tmp_path: Path,
    termination_log: Path,
    allowed: str,
    denied: str,
    code: int,
    reason: TerminationReason,
) -> None:
    store.replies.append(status(code))
    done = run(
        command(store, tmp_path), TAILBOUND_FETCH_ALLOWED_HOSTS=allowed, TAILBOUND_FETCH_DENIED_CIDRS=denied
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert Termination.read(termination_log.read_bytes()).reason is reason


@pytest.mark.parametrize(
    ("error", "reason", "said"),
    [
        (
            "EDQUOT",
            TerminationReason.INSUFFICIENT_STORAGE,
            "is full (Disk quota exceeded: {part}): free space",
        ),
        ("EIO", TerminationReason.DISK_FAILED, "cannot be used (Input/output error: {part}): check the disk"),
        ("EROFS", TerminationReason.DISK_FAILED, "cannot be used (Read-only file system: {part}): check"),
        ("EACCES", TerminationReason.DISK_FAILED, "cannot be written by user"),
    ],
)
def test_what_the_disk_of_the_pod_refuses_is_named_with_its_path(
    store: FaultyStore,
    tmp_path: Path,
    termination_log: Path,
    error: str,
    reason: TerminationReason,
    said: str,
) -> None:
    """A file system that allots space late says so at the end only."""
    python, _, _, *arguments = command(store, tmp_path)
    full = (
        "import os, sys, errno\n"
        f"def fsync(_): raise OSError(errno.{error}, os.strerror(errno.{error}))\n"
        "os.fsync = fsync\n"
        "from tailbound import main\n"
        "sys.exit(main.main(sys.argv[1:]))\n"
    )
    done = run([python, "-c", full, *arguments], TAILBOUND_FETCH_ALLOWED_HOSTS="localhost")
    assert (done.returncode, done.stderr) == (1, "")
    ended = Termination.read(termination_log.read_bytes())
    assert ended.reason is reason
    assert said.format(part=tmp_path / "model.onnx.part") in ended.message


def test_a_name_that_the_disk_cannot_have_is_named(
    store: FaultyStore, tmp_path: Path, termination_log: Path
) -> None:
    output = tmp_path / ("m" * 255)
    done = run(
        [*command(store, tmp_path), "--output", str(output)], TAILBOUND_FETCH_ALLOWED_HOSTS="localhost"
    )
    assert (done.returncode, done.stderr) == (1, "")
    ended = Termination.read(termination_log.read_bytes())
    assert ended.reason is TerminationReason.SOURCE_NOT_FOUND
    assert f"{output}.part" in ended.message
    assert "rename the file at the source" in ended.message


@pytest.mark.parametrize(
    ("option", "content", "variables", "reason", "said"),
    [
        (
            "--ca",
            None,
            {},
            TerminationReason.SOURCE_UNREACHABLE,
            "caRef does not exist or has no key 'ca.crt'",
        ),
        ("--ca", "no certificate", {}, TerminationReason.SOURCE_UNREACHABLE, "holds no PEM certificate"),
        ("--credentials", None, {}, TerminationReason.CREDENTIALS_REFUSED, "does not exist, or is empty"),
        (
            None,
            None,
            {"TAILBOUND_FETCH_PROXY": "https://proxy"},
            TerminationReason.SOURCE_UNREACHABLE,
            "'https://proxy' is not a proxy: write http://HOST:PORT",
        ),
    ],
    ids=["no-certificates", "other-than-certificates", "no-secret", "no-proxy"],
)
def test_what_the_fetch_needs_and_does_not_find_is_named(
    store: FaultyStore,
    tmp_path: Path,
    termination_log: Path,
    option: str | None,
    content: str | None,
    variables: dict[str, str],
    reason: TerminationReason,
    said: str,
) -> None:
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_text(content)
    extra = [] if option is None else [option, str(path)]
    done = run([*command(store, tmp_path), *extra], TAILBOUND_FETCH_ALLOWED_HOSTS="localhost", **variables)
    assert (done.returncode, done.stderr) == (1, "")
    ended = Termination.read(termination_log.read_bytes())
    assert ended.reason is reason
    assert said in ended.message
    assert store.requests == []


def test_without_a_digest_the_source_is_resolved_and_its_change_is_told_afterwards(
    store: FaultyStore, tmp_path: Path, termination_log: Path
) -> None:
    pinned = command(store, tmp_path)
    at = pinned.index("--sha256")
    allowed = {"TAILBOUND_FETCH_ALLOWED_HOSTS": "localhost"}
    assert run([*pinned[:at], "--resolve", *pinned[at + 2 :]], **allowed).returncode == 0
    found = Resolution.read(termination_log.read_bytes())
    assert (found.sha256, found.size_bytes) == (SHA256, len(CONTENT))
    (tmp_path / "model.onnx").unlink()
    assert run([*command(store, tmp_path, "b" * 64), "--resolved"], **allowed).returncode == 1
    ended = Termination.read(termination_log.read_bytes())
    assert ended.reason is TerminationReason.SOURCE_CHANGED
    assert f"has sha256 {SHA256}, but had {'b' * 64}" in ended.message
    assert "or refresh the InferenceService" in ended.message
    assert run([*pinned[:at], *pinned[at + 2 :]], **allowed).returncode == 1


def test_a_page_of_a_site_is_not_resolved(store: FaultyStore, tmp_path: Path, termination_log: Path) -> None:
    store.content = b"<!DOCTYPE html><html><body>Sign in</body></html>"
    pinned = command(store, tmp_path)
    at = pinned.index("--sha256")
    arguments = [*pinned[:at], "--resolve", *pinned[at + 2 :]]
    assert run(arguments, TAILBOUND_FETCH_ALLOWED_HOSTS="localhost").returncode == 1
    ended = Termination.read(termination_log.read_bytes())
    assert ended.reason is TerminationReason.NOT_A_MODEL


@pytest.mark.parametrize("sha256", ["", "abc", SHA256.upper(), SHA256 + "0"])
def test_a_malformed_digest_is_wrong_usage(store: FaultyStore, tmp_path: Path, sha256: str) -> None:
    done = run(command(store, tmp_path, sha256))
    assert done.returncode == 2
    assert "is not 64 lower-case hex digits" in done.stderr


def test_outside_a_pod_no_termination_message_is_made(store: FaultyStore, tmp_path: Path) -> None:
    assert run(command(store, tmp_path), TAILBOUND_FETCH_ALLOWED_HOSTS="localhost").returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx"}


def test_a_terminated_fetch_leaves_at_once_and_the_next_goes_on(store: FaultyStore, tmp_path: Path) -> None:
    store.replies.append(stall_after(200_000))
    process = subprocess.Popen(
        command(store, tmp_path),
        env=environment(TAILBOUND_FETCH_ALLOWED_HOSTS="localhost"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            if json.loads(line).get("percent") == 40:
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 128 + signal.SIGTERM
    assert run(command(store, tmp_path), TAILBOUND_FETCH_ALLOWED_HOSTS="localhost").returncode == 0
    assert store.requests[1]["Range"] == "bytes=200000-"
    assert (tmp_path / "model.onnx").read_bytes() == CONTENT


def test_a_fetch_ends_at_its_deadline_whatever_it_waits_for(
    store: FaultyStore, tmp_path: Path, termination_log: Path
) -> None:
    store.replies.append(stall_after(200_000))
    done = run(
        command(store, tmp_path),
        TAILBOUND_FETCH_ALLOWED_HOSTS="localhost",
        TAILBOUND_FETCH_TIMEOUT_SECONDS="1",
    )
    assert (done.returncode, done.stderr) == (1, "")
    ended = Termination.read(termination_log.read_bytes())
    assert ended.reason is TerminationReason.SOURCE_UNREACHABLE
    assert "within 1 s, which fetch.timeoutSeconds of the chart sets" in ended.message


@pytest.mark.parametrize("message", ["short", "ä" * 5000, '"' * 9000])
def test_termination_messages_fit(message: str) -> None:
    body = termination_bytes(TerminationReason.SOURCE_UNREACHABLE, message)
    assert len(body) <= 4096
    parsed = Termination.read(body).message
    assert parsed == message or parsed.endswith("…")
