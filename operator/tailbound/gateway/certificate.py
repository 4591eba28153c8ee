"""The certificate with which the sidecar answers the operator, read again when its files are replaced."""

import asyncio
import ssl
from pathlib import Path
from typing import Final

from tailbound.telemetry.logs import logger

_log = logger(__name__)

LOOK_SECONDS: Final = 10.0
"""After this time at the latest, new connections get a new certificate."""


class ServerCertificate:
    """`tls.crt` and `tls.key` of a folder; `context` serves what was there at the last look."""

    def __init__(self, folder: Path) -> None:
        """Read the files. Raises OSError if they are missing or do not fit each other."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._certificate, self._key = folder / "tls.crt", folder / "tls.key"
        self._loaded: tuple[bytes, bytes] | None = None
        self._load()

    async def run(self, every_seconds: float = LOOK_SECONDS) -> None:
        """Follow the files. What cannot be used is logged, and looked at again."""
        while True:
            await asyncio.sleep(every_seconds)
            try:
                self._load()
            except OSError as error:
                _log.warning("the certificate cannot be used", error=str(error))

    def _load(self) -> None:
        found = (self._certificate.read_bytes(), self._key.read_bytes())
        if found != self._loaded:
            self.context.load_cert_chain(self._certificate, self._key)
            self._loaded = found
