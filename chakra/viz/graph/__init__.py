"""The graph that is drawn: read, selected, folded."""
