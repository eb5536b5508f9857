"""The command line. A command's module is imported only when the command runs."""

from __future__ import annotations

import io
import os
import sys
from typing import NoReturn

USAGE_ERROR_CODE, FAILURE_CODE, INTERRUPTED_CODE = 2, 1, 130


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs the command that `arguments` name, and ends the process. `arguments=None`: takes the arguments of
    the process.

    Exit code 2 means wrong usage or configuration, 1 a failure, 130 an interruption."""
    try:
        import click

        from tidemill.cli.root import OutputPipeError, root
        from tidemill.errors import ConfigurationError, InvalidJob, InvalidPayload, TidemillError
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_CODE)
    _escape_unwritable_output()
    try:
        code = root.main(arguments, prog_name="tidemill", standalone_mode=False)
        sys.stdout.flush()  # flush here, where a closed pipe is still handled
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)  # prints only the help
        sys.exit(USAGE_ERROR_CODE)
    except click.UsageError as error:
        hint = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        _exit_with_error(error.format_message() + hint, USAGE_ERROR_CODE)
    except click.ClickException as error:
        _exit_with_error(error.format_message(), FAILURE_CODE)
    except (ConfigurationError, InvalidJob, InvalidPayload) as error:
        _exit_with_error(str(error), USAGE_ERROR_CODE)
    except TidemillError as error:
        _exit_with_error(str(error), FAILURE_CODE)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(INTERRUPTED_CODE)
    except (BrokenPipeError, OutputPipeError):
        # The reader (head, less) closed the pipe. Without this the interpreter prints an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:  # noqa: BLE001 - last resort: print a sentence instead of a traceback
        cause = _innermost_error(error)
        _exit_with_error(
            str(cause) if isinstance(cause, TidemillError) else f"{type(cause).__name__}: {cause}",
            FAILURE_CODE,
        )


def _innermost_error(error: BaseException) -> BaseException:
    """Returns the first error inside nested exception groups, or `error` itself if it is no group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _escape_unwritable_output() -> None:
    """Makes stdout and stderr print a backslash escape for each character that their encoding does not
    have."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _exit_with_error(sentence: str, code: int) -> NoReturn:
    from tidemill.cli.output import printable

    print(f"tidemill: {printable(' '.join(sentence.split()))}", file=sys.stderr)  # noqa: T201 - this is the command line
    sys.exit(code)
