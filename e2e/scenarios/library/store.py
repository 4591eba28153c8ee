"""The model store in the cluster: files are put into it, and it can be told to misbehave."""

from typing import Final

from e2e.scenarios.library.api import Api
from e2e.scenarios.library.models import Model

SERVICE: Final = "model-store:8080"


class Store:
    """The store of one cluster. Model names must be unique among scenarios that run side by side."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    def put(self, model: Model) -> Model:
        """Upload; replaces a file of that name."""
        self._api.proxy(self._namespace, SERVICE, f"/{model.name}", method="PUT", body=model.content)
        return model

    def fault(self, model: Model, kind: str) -> None:
        """Every later download of this file goes wrong in this way; "none" ends it."""
        self._api.proxy(
            self._namespace, SERVICE, "/_faults", method="POST", body={"name": model.name, "fault": kind}
        )

    def uri(self, model: Model) -> str:
        """The URI by which pods find the file."""
        return f"http://model-store.{self._namespace}.svc:8080/{model.name}"
