"""Every error that this package raises on purpose.

One base class, one class for each thing a caller can do something about. The command line turns them into one
line on standard error and the exit code that the class carries (see ``EXIT_*``).
"""

__all__ = [
    "EXIT_BAD_INPUT",
    "EXIT_BELOW_THRESHOLD",
    "EXIT_DONE",
    "EXIT_INTERNAL",
    "EXIT_STALL",
    "ChakraError",
    "ConfigError",
    "ConversionError",
    "StallError",
    "ThresholdError",
    "TraceError",
    "UsageError",
    "WorkloadError",
]

#: done
EXIT_DONE = 0
#: a fault of ours
EXIT_INTERNAL = 1
#: an input, option or file is wrong
EXIT_BAD_INPUT = 2
#: the workload cannot end
EXIT_STALL = 3
#: a result is below a threshold that was asked for
EXIT_BELOW_THRESHOLD = 4
#: ended by Ctrl-C, as shells have it
EXIT_INTERRUPTED = 130

#: characters of a message; longer ones, which quote a file at length, lose their middle
_MAX_MESSAGE = 1600


class Terminated(SystemExit):
    """The process was told to end (SIGTERM): not the fault of whatever was running then."""


class ChakraError(Exception):
    """Base of all errors raised on purpose; ``exit_code`` is what the command line returns."""

    exit_code: int = EXIT_BAD_INPUT

    def __str__(self) -> str:
        """The message in one printable line: names and texts of files can forge neither lines nor terminal commands."""
        text = super().__str__()
        if not text.isprintable():
            text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
        if len(text) > _MAX_MESSAGE:
            half = _MAX_MESSAGE // 2
            text = f"{text[:half]} ... ({len(text) - 2 * half} characters) ... {text[-half:]}"
        return text


class UsageError(ChakraError):
    """An option or argument that cannot be used as given."""


class TraceError(ChakraError):
    """A trace (file or object) that breaks the Chakra format or its own graph."""


class ConfigError(ChakraError):
    """A system, network, memory or group description with a wrong key or value."""


class WorkloadError(ChakraError):
    """Traces of several ranks that do not fit together or do not fit the system."""


class ConversionError(ChakraError):
    """An input of a converter that cannot be understood."""


class StallError(ChakraError):
    """The replay cannot go on: somebody waits for something that never comes."""

    exit_code = EXIT_STALL


class ThresholdError(ChakraError):
    """A result below a threshold that the caller asked for."""

    exit_code = EXIT_BELOW_THRESHOLD
