"""The message-level engine: every message on every link."""
