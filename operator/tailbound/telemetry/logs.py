"""Logs: one JSON object a line on stderr, with a constant message and key-values."""

import logging
import sys
from typing import Any

import structlog

_SHARED: tuple[Any, ...] = (
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
)


def configure(level: int = logging.INFO) -> None:
    """Send our own logs and those of libraries to stderr as JSON. Libraries speak up from WARNING on."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("tailbound").setLevel(level)


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger of one module: `logger(__name__)`."""
    bound: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return bound
