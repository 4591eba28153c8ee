"""Commands that go on for a while outlast a pause of the API server."""

from collections.abc import Callable
from typing import TypeVar

from tailbound.cli.subject import UnansweredError

T = TypeVar("T")


class Patient:
    """Asks the same over and over. The first question has to be answered: an address may be wrong."""

    def __init__(self) -> None:
        self._was_answered = False

    def ask(self, question: Callable[[], T]) -> T | UnansweredError:
        """The answer, or why there is none now. Raises UnansweredError if there never was any."""
        try:
            answer = question()
        except UnansweredError as error:
            if not self._was_answered:
                raise
            return error
        self._was_answered = True
        return answer
