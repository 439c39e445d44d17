"""Orders in which pipeline stages work on their micro-batches."""
