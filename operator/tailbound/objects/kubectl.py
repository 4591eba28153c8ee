"""Commands of kubectl in messages, complete: they do what the message says when they are copied. Pure."""

from dataclasses import dataclass


def kubectl(namespace: str, *words: str) -> str:
    """A command about an object of a namespace, for example `kubectl describe pod NAME -n NAMESPACE`."""
    return " ".join(("kubectl", *words, "-n", namespace))


@dataclass(frozen=True)
class Commands:
    """Commands about one InferenceService."""

    namespace: str
    service: str

    def kubectl(self, *words: str) -> str:
        """A command about an object beside the service."""
        return kubectl(self.namespace, *words)

    def tailbound(self, action: str, *options: str) -> str:
        """A command of the plugin about the service."""
        return self.kubectl("tailbound", action, self.service, *options)
