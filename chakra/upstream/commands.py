"""Upstream's commands, in both generations of names, as tables of options that lead to ours.

Source: mlcommons/chakra, `USER_GUIDE.md` and the argument parsers of its releases of 2023 to 2025.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import rich_click as click

from chakra.cli.support.numbers import WholeNumber, WholeRange
from chakra.errors import UsageError

#: what an option without effect is good for, in its help
_NO_LOG = "Taken; no log is written."


@dataclass(frozen=True, slots=True)
class Flag:
    """An option of upstream's.

    Attributes
    ----------
    names
        As upstream spells it, older spellings after it.
    ours
        The option that it becomes; None if it has no effect.
    required
        Whether upstream demands it.
    switch
        Whether it takes no value.
    help
        A line.
    """

    names: tuple[str, ...]
    ours: str | None
    required: bool = False
    switch: bool = False
    help: str = ""

    def option(self) -> click.Option:
        """The option for click."""
        return click.Option(
            list(self.names),
            required=self.required,
            is_flag=self.switch,
            help=self.help or (f"Becomes {self.ours}." if self.ours else ""),
        )


def _run(words: Sequence[str], flags: Sequence[Flag], given: dict[str, Any]) -> None:
    """Run one of our commands with what upstream's options say."""
    from chakra.cli.main import cli

    arguments = list(words)
    for flag in flags:
        value = given[flag.names[0].lstrip("-").replace("-", "_")]
        if flag.ours is None or value is None or value is False:
            continue
        arguments += [flag.ours] if flag.switch else [flag.ours, str(value)]
    with cli.make_context("chakra", arguments) as context:
        cli.invoke(context)


def _command(name: str, words: Sequence[str], *flags: Flag) -> click.Command:
    """A command of upstream's that is one of ours."""

    def callback(**given: Any) -> None:
        _run(words, flags, given)

    return click.RichCommand(
        name=name,
        params=[flag.option() for flag in flags],
        callback=callback,
        help=f"Runs chakra {' '.join(words)}.",
    )


_FILES = (
    Flag(("--input_filename", "--input-filename"), "--input_filename", required=True),
    Flag(("--output_filename", "--output-filename"), "--output_filename", required=True),
)

_PYTORCH = _command(
    "PyTorch",
    ("convert", "pytorch"),
    Flag(("--input",), "--input", required=True),
    Flag(("--output",), "--output", required=True),
    Flag(("--simulate",), "--check", switch=True),
)
_TEXT = _command(
    "Text",
    ("convert", "text"),
    Flag(("--input",), "--input", required=True),
    Flag(("--output",), "--output", required=True),
    Flag(("--num-npus",), "--num-npus", required=True),
    Flag(("--num-passes",), "--num-passes", required=True),
)


@click.group("chakra_converter", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--log-filename", help=_NO_LOG)
def _converter(log_filename: str | None) -> None:
    """Runs chakra convert."""


_converter.add_command(_PYTORCH)
_converter.add_command(_TEXT)

#: options of `et_converter` for texts only
_OLD_TEXT = (
    Flag(("--num_npus",), "--num-npus"),
    Flag(("--num_passes",), "--num-passes"),
)


def _old_converter() -> click.Command:
    """`et_converter`, whose option names the kind."""
    shared = (
        Flag(("--input_filename",), "--input", required=True),
        Flag(("--output_filename",), "--output", required=True),
    )
    silent = (
        Flag(("--num_dims",), None, help="Taken; collectives name the dimensions that they need."),
        Flag(("--npu_frequency",), None, help="Taken; times are in us as the file gives them."),
        Flag(("--log_filename",), None, help=_NO_LOG),
    )
    check = Flag(("--simulate",), "--check", switch=True)

    def callback(input_type: str, **given: Any) -> None:
        if input_type == "Text":
            missing = [flag.names[0] for flag in _OLD_TEXT if given[flag.names[0].lstrip("-")] is None]
            if missing:
                raise UsageError(
                    f"et_converter: {missing[0]} is missing: it is needed with --input_type Text"
                )
            _run(("convert", "text"), (*shared, *_OLD_TEXT), given)
        elif input_type == "PyTorch":
            _run(("convert", "pytorch"), (*shared, check), given)
        else:
            raise UsageError(
                f"et_converter: --input_type {input_type} is not read any more: PyTorch and Text are (chakra convert "
                "--help); FlexFlow's graphs have no converter here"
            )

    kind = click.Option(["--input_type"], required=True, help="PyTorch or Text.")
    flags = (*shared, *_OLD_TEXT, check, *silent)
    return click.RichCommand(
        name="et_converter",
        params=[kind, *(flag.option() for flag in flags)],
        callback=callback,
        help="Runs chakra convert text or chakra convert pytorch.",
    )


@click.command("chakra_generator", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--num_npus", type=WholeRange(1, 1 << 20), default=64, show_default=True, help="Traces a set.")
@click.option(
    "--default_runtime", type=WholeRange(0), default=5, show_default=True, help="us of compute nodes."
)
@click.option(
    "--default_tensor_size",
    type=WholeRange(0),
    default=1024,
    show_default=True,
    help="Bytes of memory nodes, sends and receives.",
)
@click.option(
    "--default_comm_size",
    type=WholeRange(0),
    default=65536,
    show_default=True,
    help="Bytes of collectives.",
)
@click.option("--num_dims", type=WholeNumber(), help="Taken; collectives are of all NPUs.")
def _generator(
    num_npus: int,
    default_runtime: int,
    default_tensor_size: int,
    default_comm_size: int,
    num_dims: int | None,
) -> None:
    """Write upstream's sample traces, one node or two each, into this folder."""
    from chakra.upstream.samples import write_samples

    write_samples(
        num_npus, runtime_us=default_runtime, tensor_bytes=default_tensor_size, comm_bytes=default_comm_size
    )


COMMANDS: dict[str, click.Command] = {
    "chakra_converter": _converter,
    "chakra_visualizer": _command("chakra_visualizer", ("visualize",), *_FILES),
    "chakra_jsonizer": _command("chakra_jsonizer", ("jsonize",), *_FILES),
    "chakra_timeline_visualizer": _command(
        "chakra_timeline_visualizer",
        ("timeline",),
        *_FILES,
        Flag(("--num_npus",), "--num_npus", required=True),
        Flag(("--npu_frequency",), "--npu_frequency", required=True),
        Flag(("--log_filename",), None, help=_NO_LOG),
    ),
    "chakra_trace_link": _command(
        "chakra_trace_link",
        ("link",),
        Flag(("--rank",), "--rank"),
        Flag(
            ("--chakra-host-trace", "--chakra-host-exec-trace", "--pytorch-et-file"),
            "--chakra-host-trace",
            required=True,
        ),
        Flag(
            ("--chakra-device-trace", "--chakra-device-exec-trace", "--kineto-file"),
            "--chakra-device-trace",
            required=True,
        ),
        Flag(("--output-file",), "--output-file", required=True),
        Flag(("--log-level",), None, help="Taken; the summary is printed, problems are errors or warnings."),
    ),
    "chakra_generator": _generator,
    "et_converter": _old_converter(),
}


def _main(name: str) -> Callable[[], NoReturn]:
    """The `main` of a module or script."""

    def main() -> NoReturn:
        from chakra.cli.main import entry

        entry(sys.argv[1:], command=COMMANDS[name], prog=name)

    return main


converter = _main("chakra_converter")
visualizer = _main("chakra_visualizer")
jsonizer = _main("chakra_jsonizer")
timeline_visualizer = _main("chakra_timeline_visualizer")
trace_link = _main("chakra_trace_link")
generator = _main("chakra_generator")
et_converter = _main("et_converter")
