"""What is derived from a run: times, figures, explanations and texts."""
