"""What each namespace may use of something that all namespaces share, in seconds. Pure."""

from dataclasses import dataclass, field


@dataclass
class Shares:
    """A part of the time that passes for each namespace, of which some can be saved up."""

    part: float
    """Seconds that a namespace may use in one second."""
    most: float
    """Seconds that can be saved up; a namespace begins with as many."""
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By namespace that has used something: seconds left, and when that was. A full share is forgotten."""

    def left(self, namespace: str, now: float) -> float:
        """Seconds that it may still use; none or less: it has to wait."""
        seconds, at = self._left.get(namespace, (self.most, now))
        return min(self.most, seconds + self.part * (now - at))

    def wait(self, namespace: str, now: float) -> float:
        """Seconds until it has some left."""
        return max(0.0, -self.left(namespace, now) / self.part)

    def use(self, namespace: str, seconds: float, now: float) -> None:
        """Count CPU seconds that the namespace has used."""
        kept = {each: self.left(each, now) for each in self._left}
        kept[namespace] = self.left(namespace, now) - seconds
        self._left = {each: (left, now) for each, left in kept.items() if left < self.most}
