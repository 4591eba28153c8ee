"""What the chart's Secret of the gateways' certificate holds."""

from pathlib import Path

import trustme
from tailbound.api.names import OBSERVED_TLS_NAME


def write_certificate(folder: Path, authority: trustme.CA) -> None:
    """The Secret's files, made by this authority."""
    folder.mkdir(exist_ok=True)
    made = authority.issue_cert(OBSERVED_TLS_NAME)
    made.private_key_pem.write_to_path(folder / "tls.key")
    made.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    authority.cert_pem.write_to_path(folder / "ca.crt")
