"""The phase-level engine: ends of whole phases, without events for messages."""
