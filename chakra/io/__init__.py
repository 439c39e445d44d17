"""Files and streams: atomic writes, gzip, bounds, leftovers."""
