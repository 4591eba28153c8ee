"""How to reach the API server: a kubeconfig, or the ServiceAccount of the pod."""

from collections.abc import Mapping

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from tailbound.kube.errors import Terminal


async def load_configuration(environ: Mapping[str, str]) -> Configuration:
    """KUBECONFIG if it is set, else the pod's ServiceAccount with its rotating token, read every minute.

    Raises Terminal if neither is usable.
    """
    configuration = Configuration()
    kubeconfig = environ.get("KUBECONFIG", "")
    try:
        if kubeconfig:
            await load_kube_config(config_file=kubeconfig, client_configuration=configuration)
        else:
            load_incluster_config(client_configuration=configuration)
    except (ConfigException, OSError) as error:
        source = (
            f"KUBECONFIG={kubeconfig}" if kubeconfig else "the pod's ServiceAccount (KUBECONFIG is not set)"
        )
        raise Terminal(f"no usable connection from {source}: {error}") from error
    return configuration
