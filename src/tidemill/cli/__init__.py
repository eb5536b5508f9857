"""The command line. Nothing heavy is imported before a command that needs it runs."""

from __future__ import annotations

import io
import os
import sys
from typing import NoReturn

USAGE, FAILURE, INTERRUPTED = 2, 1, 130


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command. Whatever goes wrong is one sentence on stderr and an exit code:
    2 when the command was used or set up wrongly, 1 when it failed."""
    try:
        import click

        from tidemill.cli.root import ReaderGone, root
        from tidemill.errors import ConfigurationError, InvalidJob, InvalidPayload, TidemillError
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    _write_anything()
    try:
        code = root.main(arguments, prog_name="tidemill", standalone_mode=False)
        sys.stdout.flush()  # here, where a reader that has gone away can still be dealt with
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)  # our own help, and nothing else
        sys.exit(USAGE)
    except click.UsageError as error:
        hint = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        _stop(error.format_message() + hint, USAGE)
    except click.ClickException as error:
        _stop(error.format_message(), FAILURE)
    except (ConfigurationError, InvalidJob, InvalidPayload) as error:
        _stop(str(error), USAGE)
    except TidemillError as error:
        _stop(str(error), FAILURE)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(INTERRUPTED)
    except (BrokenPipeError, ReaderGone):
        # The reader (head, less) has seen enough; the interpreter must not complain on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:  # noqa: BLE001 - the last resort: a sentence, not a traceback
        cause = _innermost(error)
        _stop(str(cause) if isinstance(cause, TidemillError) else f"{type(cause).__name__}: {cause}", FAILURE)


def _innermost(error: BaseException) -> BaseException:
    """A group says only how many there were."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _write_anything() -> None:
    """A terminal that is not UTF-8 shows what it cannot write as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _stop(sentence: str, code: int) -> NoReturn:
    from tidemill.cli.output import printable

    print(f"tidemill: {printable(' '.join(sentence.split()))}", file=sys.stderr)  # noqa: T201 - this is the command line
    sys.exit(code)
