"""The `chakra` command: a group whose sub-commands are imported only when they run."""

import importlib
import sys
from typing import Any

import rich_click as click

from chakra import __version__
from chakra.errors import EXIT_BAD_INPUT, EXIT_INTERNAL, ChakraError

#: command name -> (module, one-line help). The function is called `command` in every module.
COMMANDS: dict[str, tuple[str, str]] = {
    "convert": ("chakra.cli.convert", "Convert text workloads, PyTorch traces and old configurations."),
    "generate": ("chakra.cli.generate", "Generate workloads: collectives, transformers and more."),
    "info": ("chakra.cli.info", "Say what an execution trace holds."),
    "jsonize": ("chakra.cli.jsonize", "Turn an execution trace into JSON and back, without loss."),
    "link": ("chakra.cli.link", "Join a PyTorch host trace with its Kineto device trace."),
    "platform": ("chakra.cli.platform", "List, show and write machine presets."),
    "calibrate": ("chakra.cli.calibrate", "Fit network parameters to measured collective times."),
    "replay": ("chakra.cli.replay", "Replay execution traces on a described machine."),
    "report": ("chakra.cli.report", "Write a self-contained HTML report of one or more runs."),
    "sweep": ("chakra.cli.sweep", "Run a study over workload and machine parameters."),
    "timeline": ("chakra.cli.timeline", "Write a run as a Chrome or Perfetto timeline."),
    "validate": ("chakra.cli.validate", "Check the traces of all ranks before a run."),
    "visualize": ("chakra.cli.visualize", "Draw a trace's graph as PDF, SVG, PNG, DOT, GraphML or HTML."),
}


class LazyGroup(click.RichGroup):
    """A group that imports a sub-command's module when the sub-command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(COMMANDS[cmd_name][0]).command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="chakra")
def cli() -> None:
    """Chakra execution traces: generate, convert, inspect, draw and replay."""


def entry(args: list[str] | None = None) -> None:
    """Console entry point: library errors become one line on standard error and an exit code."""
    try:
        code = cli.main(args=args, prog_name="chakra", standalone_mode=False)
    except ChakraError as error:
        print(f"chakra: error: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_BAD_INPUT)
    except click.exceptions.Abort:
        print("chakra: interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(EXIT_INTERNAL)
    sys.exit(code if isinstance(code, int) else 0)
