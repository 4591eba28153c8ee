"""The model of a source without a digest in the spec, as it was found before the revision was made."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class ResolvedModel:
    """sha256: of the file, or of the folder's manifest, in lower-case hex; size_bytes: of all files."""

    sha256: str
    size_bytes: int

    def written(self) -> str:
        """The text in a revision's record."""
        return json.dumps({"sha256": self.sha256, "sizeBytes": self.size_bytes}, sort_keys=True)

    @classmethod
    def read(cls, text: str) -> "ResolvedModel":
        """The model in a record. Raises ValueError."""
        stored = json.loads(text)
        match stored:
            case {"sha256": str(sha256), "sizeBytes": int(size_bytes)}:
                return cls(sha256, size_bytes)
        raise ValueError(f"{text!r} holds no sha256 and sizeBytes")
