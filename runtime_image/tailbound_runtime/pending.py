"""An inference that is begun, and whose run is not over: what protocols hold of it until it is answered."""

from collections.abc import Callable

from tailbound_runtime.queue import Job
from tailbound_runtime.reception import Intake
from tailbound_runtime.signature import InferRequest


class Pending:
    """An inference that waits for its run, or has one.

    then: called on the loop once the run is over; set by who waits for that
    """

    __slots__ = ("_given_up", "intake", "job", "request", "then")

    def __init__(self, intake: Intake, request: InferRequest, given_up: "Callable[[Pending], None]") -> None:
        self.intake = intake
        self.request = request
        self._given_up = given_up
        self.job: Job
        self.then: Callable[[Pending], None]

    def ends(self, _: Job) -> None:
        """The run is over."""
        self.then(self)

    def cancel(self) -> None:
        """Give up, as the client has gone: `then` is not called."""
        self._given_up(self)
