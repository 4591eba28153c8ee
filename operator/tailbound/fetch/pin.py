"""What a model must be: the digest that pins it, and what a fetch of it found."""

from dataclasses import dataclass

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.failures import FetchFailedError


@dataclass(frozen=True)
class Fetched:
    """What was fetched. message: one sentence for a person.

    sha256: the digest of the file, or of the folder's manifest; None for an image, whose reference pins it.
    stated: paths of files that were not fetched to find the digest, as the source states theirs.
    """

    message: str
    sha256: str | None
    size_bytes: int
    stated: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Pin:
    """The digest that a model must have.

    sha256: 64 lower-case hex digits. resolved: a Job found it at the source when the revision was made;
    otherwise it is spec.model.sha256.
    """

    sha256: str
    resolved: bool = False

    def mismatch(self, found: str, how: str = "") -> FetchFailedError:
        """The failure for a source with another digest.

        found: the source and its digest, in words; how: how people find out what to write.
        """
        if self.resolved:
            return FetchFailedError(
                TerminationReason.SOURCE_CHANGED,
                f"{found}, but had {self.sha256} when the revision was made: restore it, or refresh "
                "the InferenceService: that makes a revision of what the source holds now",
            )
        return FetchFailedError(
            TerminationReason.DIGEST_MISMATCH,
            f"{found}, but spec.model.sha256 is {self.sha256}: set it to the digest of the model that you "
            f"mean{how}, or correct the URI",
        )
