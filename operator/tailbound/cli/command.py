"""The command line of `kubectl tailbound`. Exit status 1 if a command fails; `wait` and `plan` have more."""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from tailbound.api.names import REFRESH_ANNOTATION
from tailbound.api.quantities import Duration
from tailbound.cli import actions, outcome
from tailbound.cli.actions import Action
from tailbound.cli.arguments import ACTIONS, parser
from tailbound.cli.cluster import Cluster, ConflictError
from tailbound.cli.dryrun import applied
from tailbound.cli.history import diff, history
from tailbound.cli.measure import counted, measured
from tailbound.cli.patience import Patient
from tailbound.cli.plan import WORKS, Requests, assumed, exit_status, plan, rolls
from tailbound.cli.proposal import Proposal, propose
from tailbound.cli.refresh import Fleet, Key, outdated, unreadable
from tailbound.cli.status import overview, status
from tailbound.cli.subject import CommandError, Entry, Subject, UnansweredError
from tailbound.cli.why import why
from tailbound.judge.counters import Classes
from tailbound.objects.printable import printable
from tailbound.objects.times import utc_seconds
from tailbound.reconcile.rollouts import terms_of

_POLL_SECONDS: Final = 1.0
_SILENCE_SECONDS: Final = 15.0
"""An operator that runs looks at an edit in less."""
_TRIES: Final = 10
_CLEAR: Final = "\x1b[H\x1b[2J"


class Session:
    """One call of the command: where it looks, and where it writes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._cluster = Cluster.connect(options.kubeconfig, options.context)
        self._namespace: str = options.namespace or self._cluster.namespace

    def status(self) -> int:
        """Show it, once or until interrupted."""
        patient = Patient()
        while True:
            text = str(patient.ask(self._seen))
            if not self._options.watch:
                _print(text)
                return 0
            sys.stdout.write(_CLEAR if sys.stdout.isatty() else "")
            _print(text)
            time.sleep(_POLL_SECONDS)

    def _seen(self) -> str:
        if self._options.name is not None:
            subject = self._cluster.subject(self._namespace, self._options.name)
            return self._doubted(status(subject, datetime.now(UTC), self._cluster.fetch_logs(subject)))
        everywhere = self._options.all_namespaces
        services = self._cluster.services(None if everywhere else self._namespace)
        if not services:
            where = "any namespace" if everywhere else f"namespace {self._namespace}"
            return f"no inference services in {where}"
        return self._doubted(overview(services, namespaces=everywhere))

    def _doubted(self, text: str) -> str:
        """The text, after the message that no operator leads if that is so."""
        silence = self._cluster.silence()
        return text if silence is None else f"{silence}\n\n{text}"

    def history(self) -> int:
        """Show every revision."""
        _print(history(self._cluster.subject(self._namespace, self._options.name)))
        return 0

    def why(self) -> int:
        """Explain the last decision."""
        _print(self._doubted(why(self._cluster.subject(self._namespace, self._options.name))))
        return 0

    def diff(self) -> int:
        """Show how two revisions differ."""
        older, newer = self._revision(self._options.older), self._revision(self._options.newer)
        _print(diff(older, newer) or f"{older.name} and {newer.name} do not differ")
        return 0

    def _revision(self, name: str) -> Entry:
        return self._cluster.revision(self._namespace, name)

    def action(self) -> int:
        """Ask the operator for something. Where it writes in between, look again."""
        action, first = Action(self._options.command), None
        for _ in range(_TRIES):
            subject = self._cluster.subject(self._namespace, self._options.name)
            revision = actions.target(action, subject, getattr(self._options, "to", None))
            if first is not None and revision != first:
                raise CommandError(
                    f"{subject.title} changed from {first} to {revision} meanwhile: check "
                    f"{subject.commands.tailbound('status')}, and run the command again"
                )
            first = revision
            try:
                self._cluster.annotate(subject.service, actions.changes(action, revision, datetime.now(UTC)))
            except ConflictError:
                continue
            _print(self._doubted(actions.said(action, subject, revision)))
            return 0
        raise CommandError(
            f"{self._options.name} is changed too often by other clients: run the command again"
        )

    def refresh(self) -> int:
        """Make one service again, or several, one after the other."""
        options = self._options
        fleet = options.all or options.all_namespaces or options.selector
        if bool(options.name) == bool(fleet):
            raise CommandError("give either NAME, or --all, --selector or --all-namespaces")
        if options.name:
            self._ask_for_refresh(self._namespace, options.name)
            return 0
        where = None if options.all_namespaces else self._namespace
        services = self._cluster.services(where, options.selector or "")
        names, unknown = outdated(services), unreadable(services)
        _print("\n".join([*unknown, f"{len(names)} services are outdated"]))
        return self._refresh_all(Fleet(names, options.at_once)) or (outcome.FAILED if unknown else 0)

    def _refresh_all(self, fleet: Fleet) -> int:
        until = {}
        while not fleet.over:
            for key in fleet.to_begin():
                until[key] = time.monotonic() + self._options.timeout.timedelta / timedelta(seconds=1)
                fleet = fleet.begun(key)
                try:
                    self._ask_for_refresh(*key)
                except CommandError as error:
                    fleet = fleet.after(key, _failed(key, error))
                    break
            for key in sorted(fleet.under_way):
                ended = self._ended(key, late=time.monotonic() >= until[key])
                if ended is not None:
                    _print(ended.message)
                    fleet = fleet.after(key, ended)
            if fleet.under_way:
                time.sleep(_POLL_SECONDS)
        if fleet.failed is not None and fleet.left:
            _print(
                f"{len(fleet.left)} services were not refreshed: run the command again when the problem of "
                "this one is solved"
            )
        return outcome.PROMOTED if fleet.failed is None else fleet.failed.code

    def _ended(self, key: tuple[str, str], *, late: bool) -> outcome.WaitOutcome | None:
        """The outcome of one service's rollout; None while it goes on, or no server answers for it."""
        try:
            subject = self._cluster.subject(*key)
        except UnansweredError as error:
            return _failed(key, error) if late else None
        except CommandError as error:
            return _failed(key, error)
        ended = outcome.outcome(subject)
        if ended is None and late:
            return outcome.WaitOutcome(outcome.FAILED, _no_end(subject, self._options.timeout))
        return ended

    def _ask_for_refresh(self, namespace: str, name: str) -> None:
        for _ in range(_TRIES):
            service = self._cluster.subject(namespace, name).service
            try:
                self._cluster.annotate(service, {REFRESH_ANNOTATION: utc_seconds(datetime.now(UTC))})
            except ConflictError:
                continue
            _print(f"{namespace}/{name} gets a new revision from the present runtime, through a rollout")
            return
        raise CommandError(f"{name} is changed too often by other clients: run the command again")

    def plan(self) -> int:
        """Say what applying a file would do, without doing it."""
        options = self._options
        passed = {
            "namespace": options.namespace,
            "kubeconfig": options.kubeconfig,
            "context": options.context,
        }
        flags = [f"--{name}={value}" for name, value in passed.items() if value is not None]
        texts, code = [], WORKS
        for wanted in applied(options.filename, flags):
            namespace, name = wanted["metadata"]["namespace"], wanted["metadata"]["name"]
            around = self._cluster.surroundings(namespace, name)
            proposal = propose(self._cluster.service(namespace, name), wanted, around)
            texts.append(plan(proposal, self._requests(proposal)))
            code = max(code, exit_status(proposal))
        _print("\n\n".join(texts))
        return code

    def _requests(self, proposal: Proposal) -> Requests:
        """What the flag says, or else what the gateways count meanwhile."""
        options, spec = self._options, proposal.wanted.spec
        if options.requests_per_second is not None:
            return assumed(options.requests_per_second, terms_of(spec))
        if not rolls(proposal) or not any(each.stated for each in terms_of(spec).objectives):
            return Requests(None, "")
        remedy = "give --requests-per-second"
        try:
            first = self._counted(proposal)
            began = time.monotonic()
            time.sleep(options.measure.timedelta / timedelta(seconds=1))
            traffic = measured(first, self._counted(proposal), time.monotonic() - began)
        except (CommandError, ConflictError) as error:
            return Requests(None, f"because the gateways cannot be read ({error}): {remedy}")
        if traffic is None:
            return Requests(None, f"because no requests arrived within {options.measure}: {remedy}")
        return Requests(traffic, f"counted for {options.measure}")

    def _counted(self, proposal: Proposal) -> dict[str, dict[str, Classes]]:
        texts = self._cluster.gateway_metrics(self._options.gateway_namespace)
        return {pod: counted(text, proposal.wanted) for pod, text in texts.items()}

    def wait(self) -> int:
        """Wait until the newest spec is promoted, rolled back or paused."""
        began = time.monotonic()
        until, printed = began + self._options.timeout.timedelta / timedelta(seconds=1), False
        title, patient = f"{self._namespace}/{self._options.name}", Patient()
        while True:
            seen = patient.ask(lambda: self._cluster.subject(self._namespace, self._options.name))
            ended = outcome.outcome(seen) if isinstance(seen, Subject) else None
            if ended is not None:
                _print(ended.message)
                return ended.code
            if time.monotonic() >= until:
                raise (
                    seen
                    if isinstance(seen, CommandError)
                    else CommandError(_no_end(seen, self._options.timeout))
                )
            obstacle = seen if isinstance(seen, CommandError) else seen.obstacle
            if obstacle is not None and not printed and time.monotonic() >= began + _SILENCE_SECONDS:
                sys.stderr.write(printable(f"{title}: {obstacle}\n"))
                printed = True
            time.sleep(_POLL_SECONDS)


_RUNS: Final[Mapping[str, Callable[[Session], int]]] = {
    "status": Session.status,
    "history": Session.history,
    "why": Session.why,
    "diff": Session.diff,
    **dict.fromkeys(ACTIONS, Session.action),
    "plan": Session.plan,
    "refresh": Session.refresh,
    "wait": Session.wait,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is the process's."""
    options = parser().parse_args(arguments)
    try:
        return _RUNS[options.command](Session(options))
    except CommandError as error:
        sys.stderr.write(printable(f"error: {error}\n"))
        return 1
    except KeyboardInterrupt:
        return 130


def _failed(key: Key, error: CommandError) -> outcome.WaitOutcome:
    return outcome.WaitOutcome(outcome.FAILED, f"{'/'.join(key)}: {error}")


def _no_end(subject: Subject, timeout: Duration) -> str:
    """What is said when waiting took too long."""
    silent = outcome.awaited(subject)
    return (
        f"{subject.title}: the rollout has not ended within "
        f"{timeout}{f': {silent}' if silent else ''}.\n{why(subject)}"
    )


def _print(text: str) -> None:
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
