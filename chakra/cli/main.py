"""The `chakra` command: a group whose sub-commands are imported only when they run.

Data goes to standard output, messages to standard error. A failure is one line and an exit code: 2 for input
or usage, 3 for a stall, 4 for a threshold, 130 after Ctrl-C, 141 when the reader of the output went away, 143
after SIGTERM, and 1 for a fault of ours (``CHAKRA_DEBUG=1`` shows where).
"""

import contextlib
import errno
import importlib
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

import rich_click as click
from click.exceptions import Abort, ClickException, Exit, NoArgsIsHelpError

from chakra import __version__
from chakra.cli.support.subcommands import Subcommands, did_you_mean
from chakra.errors import EXIT_BAD_INPUT, EXIT_DONE, EXIT_INTERNAL, EXIT_INTERRUPTED, ChakraError, Terminated
from chakra.garbage import collect_rarely
from chakra.io.inputs import inputs_kept

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXIT_BROKEN_PIPE = 141
EXIT_TERMINATED = 143

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

#: command name -> (module, one-line help). The function is called `command` in every module.
COMMANDS: dict[str, tuple[str, str]] = {
    "accuracy": (
        "chakra.cli.commands.accuracy",
        "Predict measured training steps, and say how far off it is.",
    ),
    "anonymize": (
        "chakra.cli.commands.anonymize",
        "Take names and texts out of traces, for others to replay.",
    ),
    "calibrate": ("chakra.cli.commands.calibrate", "Fit network parameters to measured collective times."),
    "check-config": (
        "chakra.cli.commands.check_config",
        "Check configuration files and explain every value.",
    ),
    "compare": ("chakra.cli.commands.compare", "Say where the difference of two runs lies."),
    "completion": ("chakra.cli.commands.completion", "Let a shell complete commands, options and values."),
    "convert": (
        "chakra.cli.commands.convert",
        "Convert text workloads, PyTorch traces and old configurations.",
    ),
    "doctor": ("chakra.cli.commands.doctor", "Check this installation."),
    "generate": ("chakra.cli.commands.generate", "Generate workloads: collectives, transformers and more."),
    "info": ("chakra.cli.commands.info", "Say what an execution trace holds."),
    "jsonize": ("chakra.cli.commands.jsonize", "Turn an execution trace into JSON and back, without loss."),
    "link": ("chakra.cli.commands.link", "Join a PyTorch host trace with its Kineto device trace."),
    "platform": ("chakra.cli.commands.platform", "List, show and write machine presets."),
    "rescale": ("chakra.cli.commands.rescale", "Make a workload of more ranks from one of few."),
    "replay": ("chakra.cli.commands.replay", "Replay execution traces on a described machine."),
    "report": ("chakra.cli.commands.report", "Write a self-contained HTML report of one or more runs."),
    "schema": ("chakra.cli.commands.schema", "Print the JSON Schemas of the documents that commands write."),
    "sweep": ("chakra.cli.commands.sweep", "Run a study over workload and machine parameters."),
    "timeline": ("chakra.cli.commands.timeline", "Write a run as a Chrome or Perfetto timeline."),
    "topology": (
        "chakra.cli.commands.topology",
        "Write fat trees, rails, tori and dragonflies as network files.",
    ),
    "validate": ("chakra.cli.commands.validate", "Check the traces of all ranks before a run."),
    "warmup": ("chakra.cli.commands.warmup", "Compile the kernels of traces and replays into the cache."),
    "visualize": (
        "chakra.cli.commands.visualize",
        "Draw a trace's graph as PDF, SVG, PNG, DOT, GraphML or HTML.",
    ),
}

#: words by which other programs, or the help of these, name what a command does
OTHER_WORDS = {
    "inspect": "info",
    "describe": "info",
    "show": "info",
    "stats": "info",
    "draw": "visualize",
    "plot": "visualize",
    "run": "replay",
    "simulate": "replay",
    "study": "sweep",
    "check": "validate",
    "verify": "validate",
    "diff": "compare",
    "fit": "calibrate",
    "compile": "warmup",
}


class LazyGroup(Subcommands):
    """A group that imports a sub-command's module when the sub-command is asked for."""

    other_words = OTHER_WORDS

    #: while the group's own help is written, commands are stand-ins that carry their one line
    _listing = False

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None if there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        module, help_text = COMMANDS[cmd_name]
        if self._listing:
            return click.RichCommand(name=cmd_name, help=help_text)
        from chakra.cli.support.quiet import with_quiet

        return with_quiet(importlib.import_module(module).command)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help page without importing any command."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)  # type: ignore[arg-type]
        finally:
            self._listing = False

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Completions of a command's name, without importing any command."""
        self._listing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._listing = False


@click.group(cls=LazyGroup)
@click.version_option(__version__, prog_name="chakra")
def cli() -> None:
    """Chakra execution traces: generate, convert, inspect, draw and replay."""


def entry(
    args: list[str] | None = None, *, command: click.Command | None = None, prog: str = "chakra"
) -> NoReturn:
    """Console entry point: every failure becomes one line on standard error and an exit code.

    Parameters
    ----------
    args
        Arguments; those of the process by default.
    command, prog
        Another command than `chakra`, and its name.
    """
    collect_rarely()
    # as an exception, so that files being written and workers are cleaned up
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, _terminated)
    try:
        code = run(args, command=command, prog=prog)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
        code = EXIT_BROKEN_PIPE
    except OSError as error:
        _silence_stdout()
        if error.filename is not None or error.errno not in _DISK_FULL:
            code = _internal(error)
        else:
            code = _say(f"error: cannot write the output: {error.strerror}", EXIT_BAD_INPUT)
    sys.exit(code)


def _terminated(*_: object) -> NoReturn:
    raise Terminated(EXIT_TERMINATED)


def run(args: list[str] | None = None, *, command: click.Command | None = None, prog: str = "chakra") -> int:
    """Run one command line and return its exit code; failures to write are left to the caller.

    Stands in for click's `main`, which has its own idea of streams and exit codes.
    """
    if "_CHAKRA_COMPLETE" in os.environ:  # a shell asks for completions
        cli.main(prog_name="chakra")
    from chakra.cli.support.compiling import tell_of_compiling

    tell_of_compiling()
    try:
        group = cli if command is None else command
        with group.make_context(prog, list(sys.argv[1:] if args is None else args)) as context, inputs_kept():
            code = group.invoke(context)
    except Exit as leave:
        return leave.exit_code
    except ChakraError as error:
        return _say(f"error: {error}", error.exit_code)
    except NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)  # noqa: T201
        return EXIT_BAD_INPUT
    except ClickException as error:
        where = getattr(getattr(error, "ctx", None), "command_path", None)
        text = " ".join(f"{error.format_message()}{_nearest_choice(error)}".split())
        return _say(f"error: {text}", EXIT_BAD_INPUT, prog=where)
    except (Abort, KeyboardInterrupt):
        return _say("interrupted", EXIT_INTERRUPTED)
    except OSError:
        raise
    except MemoryError:
        return _say("error: this input needs more memory than there is", EXIT_BAD_INPUT)
    except Exception as error:
        return _internal(error)
    return code if isinstance(code, int) else EXIT_DONE


def _internal(error: Exception) -> int:
    """A fault of ours."""
    if os.environ.get("CHAKRA_DEBUG"):
        raise error
    detail = " ".join(str(error).split())
    return _say(
        f"internal error: {type(error).__name__}: {detail} (a fault of chakra, please report it; "
        "CHAKRA_DEBUG=1 shows where)",
        EXIT_INTERNAL,
    )


def _say(text: str, code: int, *, prog: str | None = None) -> int:
    """One printable line on standard error; returns the exit code."""
    text = str(ChakraError(text))  # what click quotes of the command line is as it came
    with contextlib.suppress(OSError):
        print(f"{prog or 'chakra'}: {text}", file=sys.stderr)  # noqa: T201
    return code


def _nearest_choice(error: ClickException) -> str:
    """For a value that is not one of an option's choices: the nearest of them."""
    parameter = getattr(error, "param", None)
    choices = getattr(getattr(parameter, "type", None), "choices", None)
    found = re.match(r"'([^']*)' is not one of", getattr(error, "message", ""))
    if not choices or not found:
        return ""
    hint = did_you_mean(found[1], [str(choice) for choice in choices])
    return hint if "Did you mean" in hint else ""


def _silence_stdout() -> None:
    """Point standard output at nothing, so that Python's own flush at exit has nowhere to fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
