"""Upstream's classes that scripts import, with their constructors and methods; what they do is what the commands do."""

from chakra.io.files import PathLike


class TextConverter:
    """`chakra.src.converter.text_converter.TextConverter`: a text workload to execution traces.

    Parameters
    ----------
    input_filename
        The text workload.
    output_filename
        Prefix of the traces.
    num_npus
        Traces to write.
    num_passes
        Passes.
    """

    def __init__(
        self, input_filename: PathLike, output_filename: PathLike, num_npus: int, num_passes: int
    ) -> None:
        self.input_filename = input_filename
        self.output_filename = output_filename
        self.num_npus = num_npus
        self.num_passes = num_passes

    def convert(self) -> None:
        """Write the traces.

        Raises
        ------
        WorkloadError
            If the text is wrong.
        """
        from chakra.converters.text import convert_text

        convert_text(self.input_filename, self.output_filename, npus=self.num_npus, passes=self.num_passes)


class PyTorchConverter:
    """`chakra.src.converter.pytorch_converter.PyTorchConverter`: a linked trace to an execution trace."""

    def convert(self, input_filename: PathLike, output_filename: PathLike, simulate: bool = False) -> None:
        """Write the execution trace.

        Parameters
        ----------
        input_filename
            Linked trace, JSON.
        output_filename
            Execution trace.
        simulate
            Replay it, too, and compare with the recorded time.

        Raises
        ------
        ChakraError
            If the trace cannot be read, or the replay differs.
        """
        flags = ["--check"] if simulate else []
        _run("convert", "pytorch", "--input", str(input_filename), "--output", str(output_filename), *flags)


class TraceLinker:
    """`chakra.src.trace_link.trace_linker.TraceLinker`: a host and a device trace to a linked one."""

    def link(
        self, rank: int, chakra_host_trace: PathLike, chakra_device_trace: PathLike, output_file: PathLike
    ) -> None:
        """Write the linked trace.

        Parameters
        ----------
        rank
            Rank of the traces.
        chakra_host_trace
            Host execution trace, JSON.
        chakra_device_trace
            Kineto trace, JSON.
        output_file
            Linked trace, JSON.

        Raises
        ------
        ChakraError
            If the traces cannot be read or do not match.
        """
        _run(
            "link",
            *("--rank", str(rank)),
            *("--chakra-host-trace", str(chakra_host_trace)),
            *("--chakra-device-trace", str(chakra_device_trace)),
            *("--output-file", str(output_file)),
        )


def _run(*arguments: str) -> None:
    """Run a command in this process; what goes wrong is raised."""
    from chakra.cli.main import cli

    with cli.make_context("chakra", list(arguments)) as context:
        cli.invoke(context)
