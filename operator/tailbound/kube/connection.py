"""How to reach the API server: a kubeconfig, or the ServiceAccount of the pod."""

from collections.abc import Mapping
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from tailbound.environment import Environment
from tailbound.kube.errors import Terminal


async def load_configuration(environ: Mapping[str, str]) -> Configuration:
    """KUBECONFIG if it is set, else the pod's ServiceAccount with its rotating token, read every minute.

    Raises Terminal if neither is usable.
    """
    configuration = Configuration()
    source = Environment(environ, "set it in the environment of this process")
    kubeconfig = source.optional("KUBECONFIG")
    try:
        if kubeconfig:
            await load_kube_config(config_file=kubeconfig, client_configuration=configuration)
        else:
            load_incluster_config(client_configuration=configuration)
    except (ConfigException, OSError) as error:
        tried = (
            f"KUBECONFIG={kubeconfig}" if kubeconfig else "the pod's ServiceAccount (KUBECONFIG is not set)"
        )
        raise Terminal(f"no usable connection from {tried}: {error}") from error
    configuration.proxy = configuration.proxy or _proxy(configuration.host, source)
    return configuration


def _proxy(server: str, source: Environment) -> str | None:
    """The proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY (in either case) name for this server."""
    url = urlsplit(server)
    found = {scheme: source.in_any_case(f"{scheme}_proxy") for scheme in ("https", "http", "no")}
    proxies = {scheme: value for scheme, value in found.items() if value is not None}
    return None if proxy_bypass(url.netloc, proxies) else proxies.get(url.scheme)
