"""Models as layers of operators, and the passes over them."""
