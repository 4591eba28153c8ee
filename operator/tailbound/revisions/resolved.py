"""The model of a source without a digest in the spec, as it was found before the revision was made."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class ResolvedModel:
    """sha256: of the file, or of the folder's manifest, in lower-case hex; size_bytes: of all files.

    weight_bytes: of the weights, as the headers of the files say; None if that is not known. claim: the
    PersistentVolumeClaim that has the model, None where it is the one that is named after the digest.
    """

    sha256: str
    size_bytes: int
    weight_bytes: int | None = None
    claim: str | None = None

    def written(self) -> str:
        """The text in a revision's record."""
        weights = {"weightBytes": self.weight_bytes} if self.weight_bytes is not None else {}
        claim = {"claim": self.claim} if self.claim is not None else {}
        stored = {"sha256": self.sha256, "sizeBytes": self.size_bytes, **weights, **claim}
        return json.dumps(stored, sort_keys=True)

    @classmethod
    def read(cls, text: str) -> "ResolvedModel":
        """The model in a record. Raises ValueError."""
        stored = json.loads(text)
        match stored:
            case {"sha256": str(sha256), "sizeBytes": int(size_bytes), **others}:
                weights, claim = others.get("weightBytes"), others.get("claim")
                return cls(
                    sha256,
                    size_bytes,
                    weights if isinstance(weights, int) else None,
                    claim if isinstance(claim, str) else None,
                )
        raise ValueError(f"{text!r} holds no sha256 and sizeBytes")
