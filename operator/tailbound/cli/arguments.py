"""The arguments of each command of `kubectl tailbound`, and what `--help` says about them."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final, NoReturn

from tailbound.api.quantities import Duration
from tailbound.cli.actions import Action

_DEFAULT_TIMEOUT: Final = Duration.parse("1h")
_DEFAULT_MEASURE: Final = Duration.parse("10s")
ACTIONS: Final = {
    Action.PROMOTE: "give all requests to the candidate",
    Action.ABORT: "reject the candidate and roll back its requests",
    Action.PAUSE: "keep the weight of the candidate as it is",
    Action.RESUME: "end a pause",
    Action.RETRY: "try the rejected revision again",
    Action.ROLLBACK: "roll back to an older revision",
}


class Parser(argparse.ArgumentParser):
    """A parser for which wrong usage is exit status 1, as in kubectl: 2 is that of a rollout rolled back."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"error: {message}\n")


@dataclass(frozen=True)
class _Command:
    """One command: its name, its line in `--help`, and its arguments beside those of every command."""

    name: str
    text: str
    add: Callable[[Parser], None]


def parser() -> Parser:
    """The parser of all commands; `command` is the name of the one that was given."""
    made = Parser(prog="kubectl tailbound", description="Show and control rollouts of inference services.")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for each in _COMMANDS:
        command = commands.add_parser(
            each.name, help=each.text, description=each.text[0].upper() + each.text[1:] + "."
        )
        _where(command)
        each.add(command)
    return made


def _where(command: Parser) -> None:
    command.add_argument(
        "-n", "--namespace", help="namespace of the InferenceService; default: that of the context"
    )
    command.add_argument("--context", help="context of the kubeconfig")
    command.add_argument("--kubeconfig", type=Path, help="path of the kubeconfig; default: as for kubectl")


def _service(command: Parser) -> None:
    command.add_argument("name", metavar="NAME", help="name of the InferenceService")


def _status(command: Parser) -> None:
    command.add_argument("name", nargs="?", metavar="NAME", help="name of the InferenceService; default: all")
    command.add_argument(
        "-A", "--all-namespaces", action="store_true", help="show services of all namespaces"
    )
    command.add_argument("-w", "--watch", action="store_true", help="show it again every second")


def _diff(command: Parser) -> None:
    command.add_argument("older", metavar="REVISION")
    command.add_argument("newer", metavar="REVISION")


def _rollback(command: Parser) -> None:
    _service(command)
    command.add_argument(
        "--to", metavar="REVISION", help="revision to roll back to; default: the one that served before"
    )


def _plan(command: Parser) -> None:
    command.add_argument("-f", "--filename", required=True, metavar="FILE", help="as for kubectl apply")
    command.add_argument(
        "--requests-per-second",
        type=_rate,
        metavar="N",
        help="request rate; default: counted at the gateways",
    )
    command.add_argument(
        "--measure",
        type=_duration,
        default=_DEFAULT_MEASURE,
        help="time for which requests are counted; default: 10s",
    )
    command.add_argument(
        "--gateway-namespace",
        default="tailbound-system",
        help="namespace of Tailbound; default: tailbound-system",
    )


def _refresh(command: Parser) -> None:
    command.add_argument(
        "name", nargs="?", metavar="NAME", help="refresh this InferenceService and return at once"
    )
    command.add_argument(
        "--all", action="store_true", help="refresh all outdated services, one after the other"
    )
    command.add_argument("-l", "--selector", help="refresh only services with these labels")
    command.add_argument(
        "-A", "--all-namespaces", action="store_true", help="refresh services of all namespaces"
    )
    command.add_argument(
        "--at-once",
        type=_count,
        default=1,
        metavar="N",
        help="number of services to refresh at a time; default: 1",
    )
    _timeout(command, "timeout for each service; default: 1h")


def _wait(command: Parser) -> None:
    _service(command)
    _timeout(command, "timeout, for example 10m; default: 1h")


def _timeout(command: Parser, text: str) -> None:
    command.add_argument("--timeout", type=_duration, default=_DEFAULT_TIMEOUT, help=text)


_COMMANDS: Final = (
    _Command("status", "show the stable revision, the candidate, and the evidence", _status),
    _Command("history", "list the revisions and the result of each", _service),
    _Command("why", "explain the last decision with its numbers", _service),
    _Command("diff", "show how two revisions differ", _diff),
    *(
        _Command(action.value, text, _rollback if action is Action.ROLLBACK else _service)
        for action, text in ACTIONS.items()
    ),
    _Command(
        "plan",
        "show what applying a file would do, without applying it: exit status 0 if it would work, 2 if not, "
        "1 otherwise",
        _plan,
    ),
    _Command(
        "refresh",
        "make a new revision from the present runtime, HardwareClass and operator, through a normal rollout",
        _refresh,
    ),
    _Command(
        "wait",
        "wait for the end of a rollout: exit status 0 promoted, 2 rolled back, 3 paused, 1 otherwise",
        _wait,
    ),
)


def _duration(text: str) -> Duration:
    try:
        return Duration.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a request rate: write a number above 0")
    return rate


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of services: write 1 or more")
    return int(text)
