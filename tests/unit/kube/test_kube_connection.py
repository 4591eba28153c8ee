"""Which proxy is between us and the API server: the kubeconfig's, else the environment's."""

from pathlib import Path

import pytest
from tailbound.kube.connection import load_configuration
from tailbound.kube.errors import Terminal

SERVER = "https://api.example:6443"


def kubeconfig(folder: Path, proxy: str = "") -> str:
    """The path of a kubeconfig for SERVER, through `proxy` if one is given."""
    path = folder / "kubeconfig"
    path.write_text(f"""
apiVersion: v1
kind: Config
current-context: only
contexts: [{{name: only, context: {{cluster: only, user: only}}}}]
clusters: [{{name: only, cluster: {{server: "{SERVER}"{f", proxy-url: {proxy}" if proxy else ""}}}}}]
users: [{{name: only, user: {{token: secret}}}}]
""")
    return str(path)


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ({"https_proxy": "http://proxy:3128"}, "http://proxy:3128"),
        ({"HTTPS_PROXY": ""}, None),
        ({"HTTP_PROXY": "http://proxy:3128"}, None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "localhost,api.example"}, None),
        ({"HTTPS_PROXY": "http://proxy:3128", "no_proxy": ".example"}, None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "other.example"}, "http://proxy:3128"),
    ],
    ids=str,
)
async def test_proxy_of_the_environment(tmp_path: Path, environ: dict[str, str], proxy: str | None) -> None:
    configuration = await load_configuration({**environ, "KUBECONFIG": kubeconfig(tmp_path)})
    assert configuration.proxy == proxy


async def test_proxy_of_the_kubeconfig_goes_before_the_environments(tmp_path: Path) -> None:
    environ = {"HTTPS_PROXY": "http://proxy:3128", "KUBECONFIG": kubeconfig(tmp_path, "http://nearer:3128")}
    assert (await load_configuration(environ)).proxy == "http://nearer:3128"


async def test_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(Terminal, match=f"KUBECONFIG={tmp_path}/none"):
        await load_configuration({"KUBECONFIG": f"{tmp_path}/none"})
