"""The one command of the operator image: `tailbound operator | gateway | fetch | digest | hold`.

Each subcommand imports only its own part, so that the fetch container does not pay for a Kubernetes client.
"""

import sys
from collections.abc import Callable, Sequence

USAGE = "usage: tailbound {operator|gateway|fetch|digest|hold} [options]"


def _operator() -> Callable[[Sequence[str]], int]:
    from tailbound.controller.command import main as command

    return command


def _gateway() -> Callable[[Sequence[str]], int]:
    from tailbound.gateway.command import main as command

    return command


def _fetch() -> Callable[[Sequence[str]], int]:
    from tailbound.fetch.command import main as command

    return command


def _digest() -> Callable[[Sequence[str]], int]:
    from tailbound.fetch.digest import main as command

    return command


def _hold() -> Callable[[Sequence[str]], int]:
    from tailbound.hold.command import main as command

    return command


COMMANDS = {"operator": _operator, "gateway": _gateway, "fetch": _fetch, "digest": _digest, "hold": _hold}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; the exit status is the process's. Unknown words print the usage and return 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    load = COMMANDS.get(arguments[0]) if arguments else None
    if load is None:
        sys.stderr.write(USAGE + "\n")
        return 2
    return load()(arguments[1:])


if __name__ == "__main__":
    raise SystemExit(main())
