"""The models of this server, by name: each has one version in service."""

from collections.abc import Iterator
from typing import NamedTuple

from tailbound_runtime.errors import ApiError
from tailbound_runtime.model import Model
from tailbound_runtime.routes import MODEL_ROUTES, SERVER_ROUTES, Route


class Target(NamedTuple):
    """What a path names. The model is None where the route is not one of a model."""

    route: Route
    model: Model | None


class Models:
    """The loop's own."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}
        self._leaving: list[Model] = []
        self.targets: dict[bytes, Target] = {}
        self._index()

    def __iter__(self) -> Iterator[Model]:
        return iter(tuple(self._models.values()))

    def __contains__(self, name: str) -> bool:
        return name in self._models

    def put(self, model: Model) -> None:
        """Serve this one, instead of the one of its name if there is one."""
        old = self._models.get(model.name)
        self._models[model.name] = model
        self._index()
        self._leave(old)

    def remove(self, name: str) -> None:
        """Serve the model of this name no longer, if there is one."""
        old = self._models.pop(name, None)
        self._index()
        self._leave(old)

    def get(self, name: str) -> Model | None:
        """The model of this name."""
        return self._models.get(name)

    def find(self, name: str, version: str) -> Model:
        """The model of this name and version, any if that is empty. Raises ApiError 404."""
        found = self._models.get(name)
        if found is None or version not in ("", found.version):
            raise ApiError(404, f"this server has no model {name!r}, version {version!r}: {self.known()}")
        return found

    def known(self) -> str:
        """What it has, for messages."""
        named = [f"model {model.name!r}, version {model.version!r}" for model in self]
        return f"it has {'; '.join(named)}" if named else "it has no model now"

    @property
    def size_bytes(self) -> int:
        """The sum for the files of all models here, with those that serve their last requests."""
        self._leaving = [model for model in self._leaving if not model.closed]
        return sum(model.size_bytes for model in (*self._models.values(), *self._leaving))

    def _leave(self, old: Model | None) -> None:
        if old is not None:
            self._leaving.append(old)
            old.retire()

    def _index(self) -> None:
        """Each path in full: a request then costs one look, however many models there are."""
        table = {path: Target(route, None) for path, route in SERVER_ROUTES.items()}
        for model in self._models.values():
            for base in (f"/v2/models/{model.name}", f"/v2/models/{model.name}/versions/{model.version}"):
                table.update({base + end: Target(route, model) for end, route in MODEL_ROUTES.items()})
        self.targets = {path.encode(): target for path, target in table.items()}
