"""The first bodies of the model server's fuzzer; `make fuzz` sends many more, and others each time."""

from pathlib import Path

from tests.fuzz import runtime


def test_no_body_makes_the_server_blame_itself_or_hang(tmp_path: Path) -> None:
    outcome = runtime.fuzz(1, 450, tmp_path)
    assert outcome.faults == []
    assert min(outcome.answers[each] for each in ("rest 200", "grpc OK", "http2 answered")) > 0
