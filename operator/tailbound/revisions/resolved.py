"""The model of a source without a digest in the spec, as it was found before the revision was made."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class ResolvedModel:
    """sha256: of the file, or of the folder's manifest, in lower-case hex; size_bytes: of all files.

    weight_bytes: of the weights, as the headers of the files say; None if that is not known.
    """

    sha256: str
    size_bytes: int
    weight_bytes: int | None = None

    def written(self) -> str:
        """The text in a revision's record."""
        weights = {"weightBytes": self.weight_bytes} if self.weight_bytes is not None else {}
        return json.dumps({"sha256": self.sha256, "sizeBytes": self.size_bytes, **weights}, sort_keys=True)

    @classmethod
    def read(cls, text: str) -> "ResolvedModel":
        """The model in a record. Raises ValueError."""
        stored = json.loads(text)
        match stored:
            case {"sha256": str(sha256), "sizeBytes": int(size_bytes), **others}:
                weights = others.get("weightBytes")
                return cls(sha256, size_bytes, weights if isinstance(weights, int) else None)
        raise ValueError(f"{text!r} holds no sha256 and sizeBytes")
