"""Configuration files: network, system, remote memory, communicator groups."""
