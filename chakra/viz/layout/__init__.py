"""Where nodes and edges of a drawing lie."""
