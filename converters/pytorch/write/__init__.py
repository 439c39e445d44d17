"""Writing linked graphs, and checking what was written."""
