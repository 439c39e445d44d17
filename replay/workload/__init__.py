"""A workload as the engines run it, and how it is made from traces."""
