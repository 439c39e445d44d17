"""Flows that share links: which links each pair of NPUs uses, and which of them are alike."""
