"""A cluster's certificates, keys and kubeconfigs. One certificate authority signs everything."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

NO_GROUP = "tailbound:no-group"
CLIENT_HOST = "client.invalid"


@dataclass(frozen=True)
class Pki:
    """The key material under `folder`: ca.crt, ca.key, sa.key, sa.pub and NAME.crt, NAME.key per `issue`."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> "Pki":
        """Make an authority and a ServiceAccount signing key in `folder`, unless they are there already."""
        folder.mkdir(parents=True, exist_ok=True)
        pki = cls(folder)
        if not pki.ca.exists():
            _write_signing_key(folder)
            authority = trustme.CA()
            authority.private_key_pem.write_to_path(str(pki.key("ca")))
            authority.cert_pem.write_to_path(str(pki.ca))
        return pki

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def issue(
        self, name: str, *, user: str, group: str = NO_GROUP, hosts: Sequence[str] = ()
    ) -> tuple[bytes, bytes]:
        """Sign a certificate for `user` (its common name) in `group` (its organization), valid for `hosts`.

        Writes NAME.crt and NAME.key; returns both as PEM.
        """
        authority = trustme.CA.from_pem(self.ca.read_bytes(), self.key("ca").read_bytes())
        # Go refuses a critical list of alternative names that is empty, so clients get a name too.
        issued = authority.issue_cert(*(hosts or [CLIENT_HOST]), common_name=user, organization_name=group)
        certificate = issued.cert_chain_pems[0].bytes()
        key = issued.private_key_pem.bytes()
        self.certificate(name).write_bytes(certificate)
        self.key(name).write_bytes(key)
        self.key(name).chmod(0o600)
        return certificate, key

    def client_kubeconfig(self, name: str, server: str, *, user: str, group: str = NO_GROUP) -> Path:
        """A kubeconfig for `user`, beside the folder of keys as NAME.kubeconfig, with everything embedded."""
        certificate, key = self.issue(name, user=user, group=group)
        return self._kubeconfig(
            name, server, {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}
        )

    def token_kubeconfig(self, name: str, server: str, token: str) -> Path:
        """A kubeconfig that authenticates with a bearer token."""
        return self._kubeconfig(name, server, {"token": token})

    def _kubeconfig(self, name: str, server: str, user: dict[str, str]) -> Path:
        path = self.folder.parent / f"{name}.kubeconfig"
        cluster = {"server": server, "certificate-authority-data": _base64(self.ca.read_bytes())}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tailbound", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "tailbound", "context": {"cluster": "tailbound", "user": name}}],
            "current-context": "tailbound",
        }
        path.write_text(json.dumps(document, indent=2) + "\n")
        path.chmod(0o600)
        return path


def _write_signing_key(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "sa.key").write_bytes(private)
    (folder / "sa.pub").write_bytes(public)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
