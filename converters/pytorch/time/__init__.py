"""The host's time as nodes: pieces of operators, waits and gaps."""
