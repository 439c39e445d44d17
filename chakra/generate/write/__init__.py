"""Plans as traces and files."""
