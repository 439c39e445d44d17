"""What a user may ask the generator for: named parameters."""
