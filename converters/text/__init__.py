"""Text workloads of ASTRA-sim 1.0 to execution traces.

`grammar` holds the values, `reader` reads a file, `policies` is the table of dependency rules, `passes` turns
a row of it into a graph, `spans` says which NPUs a collective joins, `encode` and `output` write the files,
`upstream` imitates upstream's converter.
"""

from chakra.converters.text.conversion_summary import Summary
from chakra.converters.text.convert import Converted, convert_text, load_text, write_converted
from chakra.converters.text.grammar import Layer, Step, TextWorkload
from chakra.converters.text.reader import parse_workload, read_workload

__all__ = [
    "Converted",
    "Layer",
    "Step",
    "Summary",
    "TextWorkload",
    "convert_text",
    "load_text",
    "parse_workload",
    "read_workload",
    "write_converted",
]
