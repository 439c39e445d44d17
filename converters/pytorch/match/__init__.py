"""Which host operator is which device operator, and which launched what."""
