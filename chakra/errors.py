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


class ChakraError(Exception):
    """Base of all errors raised on purpose; ``exit_code`` is what the command line returns."""

    exit_code: int = EXIT_BAD_INPUT


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
