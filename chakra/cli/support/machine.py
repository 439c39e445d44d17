"""Which machine a command replays on: files, or a known one by name."""

import os
import shlex

import rich_click as click

from chakra.cli.support.options import Options
from chakra.errors import ChakraError, UsageError
from chakra.io.readable import counted


def put_machine(options: Options, *, replicates: bool = False) -> None:
    """Put the configuration of `--platform` where no file is given.

    Parameters
    ----------
    options
        Options of the command.
    replicates
        Whether the command has ``--replicate``.

    Raises
    ------
    UsageError
        Neither is given, or there is no such machine, or not of the workload's size.
    """
    words = options.pop("platform")
    refuse_words(options["network"])
    missing = [
        flags
        for name, flags in (
            ("system", "'-s' / '--system' / '--system-configuration'"),
            ("network", "'-n' / '--network' / '--network-configuration'"),
        )
        if options[name] is None
    ]
    if words is None:
        if missing:
            raise click.UsageError(f"Missing option {missing[0]}, or '--platform' for a known machine.")
        return
    if not missing:
        raise UsageError("--platform: the machine is given by -s and -n already")
    from chakra.platforms import cluster
    from chakra.platforms.cluster import counted_npus
    from chakra.replay.prepare import workload_facts

    npus, timed = workload_facts(options["workload"])
    size = counted_npus(words)
    if replicates and not options["replicate"] and size and npus and size > npus and size % npus == 0:
        raise UsageError(
            f"{words!r} has {counted(size, 'NPU')}, not {npus}; --replicate repeats the traces that there are"
        )
    machine = cluster(words, None if options["replicate"] else npus)
    if options["network"] is None:
        options["network"] = machine.network()
    if options["system"] is None:
        options["system"] = machine.system(**({"roofline_enabled": 0} if timed else {}))


def refuse_words(network: object) -> None:
    """Refuse the words for a machine where a network file belongs.

    Parameters
    ----------
    network
        What `--network` says; not a text: nothing or a network itself.

    Raises
    ------
    UsageError
        Words that `--platform` takes.
    """
    if not isinstance(network, str) or os.path.exists(network):
        return
    from chakra.platforms import cluster

    try:
        cluster(network, sized=False)
    except ChakraError:
        return
    raise UsageError(
        f"-n {network}: no such file; a known machine is given by --platform {shlex.quote(network)}"
    )
