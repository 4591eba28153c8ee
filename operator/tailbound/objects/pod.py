"""The view of a Pod."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tailbound.objects.fields import Field, Object, child, children, count, is_true, number, text, texts
from tailbound.objects.metadata import KubernetesObject

_FINISHED: Final = frozenset({"Failed", "Succeeded"})


@dataclass(frozen=True)
class Terminated:
    """How a container ended."""

    raw: Object
    exit_code = Field(number, "exitCode")
    """None where it is absent, against the API's promise."""
    reason = Field(text, "reason")
    """One word, such as OOMKilled; empty where it is absent."""
    message = Field(text, "message")
    """The termination message or the end of the log; empty without either."""


@dataclass(frozen=True)
class ContainerStatus:
    """What the kubelet reports of one container."""

    raw: Object
    name = Field(text, "name")
    """Empty where it is absent."""
    image = Field(text, "image")
    """Empty where it is absent."""
    ready = Field(is_true, "ready")
    """Whether its readiness probe succeeds; absent means that it does not."""
    started = Field(is_true, "started")
    """Whether its startup probe has succeeded; absent means that it has not."""
    restart_count = Field(count, "restartCount")
    """How often it was started again."""

    @property
    def running(self) -> bool:
        """Whether it runs now."""
        return isinstance(child(self.raw, "state").get("running"), Mapping)

    waiting_reason = Field(text, "state", "waiting", "reason")
    """Why it does not run yet, in one word; empty where it does not wait."""
    waiting_message = Field(text, "state", "waiting", "message")
    """Why it does not run yet, for people; empty where nothing is said."""

    @property
    def terminated(self) -> Terminated | None:
        """How it ended; None: it runs, or waits."""
        return _terminated(child(self.raw, "state"))

    @property
    def last_terminated(self) -> Terminated | None:
        """How it ended before its newest restart; None: it was never restarted."""
        return _terminated(child(self.raw, "lastState"))


def _terminated(state: Object) -> Terminated | None:
    ended = state.get("terminated")
    return Terminated(ended) if isinstance(ended, Mapping) else None


@dataclass(frozen=True)
class ContainerProbe:
    """A check of a container."""

    raw: Object

    @property
    def request(self) -> str:
        """What it asks, for people."""
        if "httpGet" in self.raw:
            get = child(self.raw, "httpGet")
            return f"GET {text(get, 'path') or '/'} on port {get.get('port')}"
        if "exec" in self.raw:
            return " ".join(texts(child(self.raw, "exec"), "command"))
        handler = "grpc" if "grpc" in self.raw else "tcpSocket"
        return f"{handler} on port {child(self.raw, handler).get('port')}"


@dataclass(frozen=True)
class NamedPort:
    """A port that a container listens on."""

    raw: Object
    name = Field(text, "name")
    """Empty for a port without a name."""
    container_port = Field(count, "containerPort")
    """Its number; 0 where it is absent, against the API's promise."""


@dataclass(frozen=True)
class Container:
    """One container of a pod's spec."""

    raw: Object
    name = Field(text, "name")
    """Empty where it is absent."""

    @property
    def startup_probe(self) -> ContainerProbe | None:
        """The startup probe; None if it has none."""
        return self._probe("startupProbe")

    @property
    def readiness_probe(self) -> ContainerProbe | None:
        """The readiness probe; None if it has none."""
        return self._probe("readinessProbe")

    @property
    def always_restarted(self) -> bool:
        """Whether an init container is a sidecar."""
        return text(self.raw, "restartPolicy") == "Always"

    @property
    def ports(self) -> Iterator[NamedPort]:
        """The ports that it names."""
        return map(NamedPort, children(self.raw, "ports"))

    def _probe(self, name: str) -> ContainerProbe | None:
        probe = child(self.raw, name)
        return ContainerProbe(probe) if probe else None


@dataclass(frozen=True)
class Pod(KubernetesObject):
    """A Pod."""

    node_name = Field(text, "spec", "nodeName")
    """The node that it was given to; empty while it has none."""

    @property
    def containers(self) -> Iterator[Container]:
        """The containers of its spec, init containers left out."""
        return map(Container, children(child(self.raw, "spec"), "containers"))

    @property
    def init_containers(self) -> Iterator[Container]:
        """The init containers of its spec, sidecars included."""
        return map(Container, children(child(self.raw, "spec"), "initContainers"))

    pod_ip = Field(text, "status", "podIP")
    """Its address; empty while it has none."""

    @property
    def host(self) -> str:
        """Its address as a URL has it: that of IPv6 in brackets."""
        return f"[{self.pod_ip}]" if ":" in self.pod_ip else self.pod_ip

    def port(self, container: str, *names: str) -> int | None:
        """The port of this container that has the first of these names; None where it has none of them."""
        of = (each.ports for each in self.containers if each.name == container)
        ports = {port.name: port.container_port for each in of for port in each}
        return next((ports[name] for name in names if ports.get(name)), None)

    @property
    def finished(self) -> bool:
        """Whether all its containers have ended and none will be started again: it holds nothing any more."""
        return text(child(self.raw, "status"), "phase") in _FINISHED

    reason = Field(text, "status", "reason")
    """Why it is in its phase, in one word, such as Evicted; empty where nothing is said."""
    message = Field(text, "status", "message")
    """The reason in a sentence; empty where none is given."""

    @property
    def scheduled(self) -> bool:
        """Whether it has a node: its condition PodScheduled is True."""
        return self.condition("PodScheduled").status == "True"

    @property
    def ready(self) -> bool:
        """Whether its condition Ready is True."""
        return self.condition("Ready").status == "True"

    @property
    def init_container_statuses(self) -> Iterator[ContainerStatus]:
        """The statuses in the order of the spec; none before the kubelet has seen the pod."""
        return map(ContainerStatus, children(child(self.raw, "status"), "initContainerStatuses"))

    @property
    def container_statuses(self) -> Iterator[ContainerStatus]:
        """The statuses without init containers, in the order of the spec; may be empty at first."""
        return map(ContainerStatus, children(child(self.raw, "status"), "containerStatuses"))
