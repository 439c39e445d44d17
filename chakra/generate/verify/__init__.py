"""What a planned step comes to, and whether closed forms agree."""
