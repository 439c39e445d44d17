"""NPUs that behave alike, so that one of each kind is simulated."""
