"""`python -m tailbound_runtime [COMMAND MODEL]`: a command, or serve what the environment names."""

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

import structlog
import uvloop

from tailbound_runtime import command, config, logs, measure, server
from tailbound_runtime.contract import TerminationReason, write_termination
from tailbound_runtime.errors import (
    CommandError,
    ModelBrokenError,
    ModelFailedError,
    ModelInputError,
    ModelLoadError,
)


def _audit(arguments: Sequence[str]) -> int:
    """`tailbound-runtime audit`."""
    from tailbound_runtime import audit

    return audit.main(arguments)


def _optimize(arguments: Sequence[str]) -> int:
    """`tailbound-runtime optimize`."""
    from tailbound_runtime import optimize

    return optimize.main(arguments)


COMMANDS: Final[Mapping[str, Callable[[Sequence[str]], int]]] = {
    "audit": _audit,
    "bench": measure.main,
    "optimize": _optimize,
}
"""Commands beside `serve`. Some need packages that serving does not: these are imported when they run."""


def main(arguments: Sequence[str]) -> int:
    """The exit status: 0 after a drain, 1 if the model or the environment makes serving impossible."""
    if arguments and arguments[0] in COMMANDS:
        # What a command prints is its result.
        logs.configure(sys.stderr)
        try:
            return COMMANDS[arguments[0]](arguments[1:])
        except ModuleNotFoundError as error:
            sys.stderr.write(f"error: {error}: pip install 'tailbound-runtime[tools]' installs it\n")
        except (CommandError, ModelLoadError, ModelInputError, ModelFailedError) as error:
            sys.stderr.write(f"error: {error}\n")
        return 1
    logs.configure()
    try:
        env = {**os.environ, **command.environment(arguments)} if arguments else os.environ
        settings = config.from_env(env)
        named = {} if settings.model_name is None else {"model": settings.model_name}
        logs.configure(**named, revision=settings.revision)
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


def run() -> NoReturn:
    """Serve, and end the process."""
    status = main(sys.argv[1:])
    logging.shutdown()
    sys.stdout.flush()
    # Not sys.exit: ONNX Runtime's destructors may crash under a thread that is still loading a model.
    os._exit(status)


if __name__ == "__main__":
    run()
