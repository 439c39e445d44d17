"""How often Python looks for garbage in cycles."""

import gc

#: objects made, less those given up, from which the youngest are looked at; how many such looks until older ones are
THRESHOLDS = (50_000, 20, 50)


def collect_rarely() -> None:
    """Look for cycles rarely, in a process that runs a command and ends.

    Commands build large documents of objects that live until the end. Python looks at them again and again, which took
    up to a third of the time of a check of 16,384 links, and more the larger the input. Little here is in cycles: what
    is, waits a while longer.
    """
    gc.set_threshold(*THRESHOLDS)
