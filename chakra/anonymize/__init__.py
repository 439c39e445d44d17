"""Traces that can leave a company: what a replay needs is kept by a closed list, every text becomes a class.

Nothing is passed on because it is unknown: a file is made anew from what this package reads on purpose, so an
attribute, a JSON key or a protobuf field that it does not know can carry nothing out.
"""

from chakra.anonymize.labels import Labels, read_key
from chakra.anonymize.trace import anonymous_trace
from chakra.anonymize.workload import Summary, anonymize

__all__ = ["Labels", "Summary", "anonymize", "anonymous_trace", "read_key"]
