"""What commands share: options, progress, messages."""
