"""A collective algorithm and a network for chakra-replay."""
