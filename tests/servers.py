"""`make test-servers`: servers of other projects, and engines of ours, for real; T=NAME: those of one name.

Without a name: all servers, the engines that `make test` leaves out, and every heavy scenario. The exit
status is that of the first part that failed; 2: nothing has this name.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from e2e.scenarios.library.engines import FROM_A_VOLUME
from tests.integration.servers.kinds import SERVERS
from tests.integration.servers.results import NOT_RUN

_SCENARIO: Final = "e2e/scenarios/test_engines.py::test_a_large_engines_model_answers_as_its_library"
_IMAGE: Final = "tests/engines/test_engine_images.py::test_the_image_of_an_engine_serves_with_its_own_entry"
_TORCHSERVE: Final = (
    "e2e/scenarios/test_servers.py"
    "::test_torchserve_is_promoted_without_a_lost_request_and_ends_when_it_is_told"
)
_TESTS: Final[Mapping[str, str]] = {
    **{name: f"tests/engines/test_engine_{name}.py" for name in ("torch", "executorch")},
    **dict.fromkeys(("tensorflow", "jax"), "tests/engines/test_engine_large.py"),
    **{name: f"tests/runtime/test_engine_{name}.py" for name in ("openvino", "litert", "sklearn", "mlx")},
    **dict.fromkeys(("xgboost", "lightgbm"), "tests/runtime/test_engine_trees.py"),
}
"""The file with the tests of each engine beside ONNX Runtime."""


@dataclass(frozen=True)
class Proof:
    """The tests of one server or engine.

    servers: to be examined as processes, or named with the reason why they are not
    tests: arguments of pytest, for what needs no cluster
    scenarios: arguments of pytest, for our own cluster
    """

    servers: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()


EVERYTHING: Final = Proof(
    tuple(sorted({*SERVERS, *NOT_RUN})), ("tests/engines",), ("e2e/scenarios", "-m", "heavy")
)


def table() -> dict[str, Proof]:
    """By each name that a server or an engine has; OpenVINO is the name of both."""
    from_a_volume = {each.name for each in FROM_A_VOLUME}
    found = {}
    for name in sorted({*EVERYTHING.servers, *_TESTS}):
        found[name] = Proof(
            servers=(name,) if name in EVERYTHING.servers else (),
            tests=(
                *((_TESTS[name],) if name in _TESTS else ()),
                *((f"{_IMAGE}[{name}]",) if name in from_a_volume else ()),
            ),
            scenarios=(
                *((f"{_SCENARIO}[{name}]",) if name in from_a_volume else ()),
                *((_TORCHSERVE,) if name == "torchserve" else ()),
            ),
        )
    return found


def commands(proof: Proof, *, own_cluster: bool) -> list[list[str]]:
    """The commands that prove it, in order; scenarios need our own cluster, and give way to no process."""
    python = [sys.executable, "-m"]
    listed = [
        (["nice", *python, "tests.integration.servers"], proof.servers),
        (["nice", *python, "pytest", "-q"], proof.tests),
        ([*python, "pytest", "-q"], proof.scenarios if own_cluster else ()),
    ]
    return [[*command, *chosen] for command, chosen in listed if chosen]


def main(names: Sequence[str]) -> int:
    """Run the proof of this name, or all; each part also after one that failed."""
    known = table()
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.stderr.write(f"T={unknown[0]} is no server or engine: write one of {', '.join(known)}\n")
        return 2
    proofs = [known[name] for name in names] or [EVERYTHING]
    own_cluster = not os.environ.get("KUBECONFIG")
    if not own_cluster and any(proof.scenarios for proof in proofs):
        sys.stdout.write("scenarios are not run: they need our own cluster, and KUBECONFIG names another\n")
    codes = [
        subprocess.run(command, check=False).returncode
        for proof in proofs
        for command in commands(proof, own_cluster=own_cluster)
    ]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
