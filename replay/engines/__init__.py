"""The engines: what they are given, which one runs, what they hand back."""
