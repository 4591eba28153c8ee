"""`python -m tailbound_runtime`: serve the model that the environment names."""

import logging
import os
import sys

import structlog
import uvloop

from tailbound_runtime import config, logs, server
from tailbound_runtime.contract import TerminationReason, write_termination
from tailbound_runtime.errors import ModelBrokenError, ModelLoadError


def main() -> int:
    """The exit status: 0 after a drain, 1 if the model or the environment makes serving impossible."""
    logs.configure()
    try:
        settings = config.from_env(os.environ)
        logs.configure(model=settings.model_name, revision=settings.revision)
        uvloop.run(server.serve(settings, server.listen(settings.http_port)))
    except (config.ConfigError, ModelLoadError) as error:
        structlog.get_logger(__name__).error("cannot serve", error=str(error))
        write_termination(config.termination_log(os.environ), TerminationReason.MODEL_LOAD_FAILED, str(error))
        return 1
    except ModelBrokenError as error:
        structlog.get_logger(__name__).error("model broken", error=str(error))
        write_termination(config.termination_log(os.environ), TerminationReason.MODEL_BROKEN, str(error))
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    sys.stdout.flush()
    # Not sys.exit: ONNX Runtime's destructors may crash under a thread that is still loading a model.
    os._exit(status)
