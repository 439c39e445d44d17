"""The linked graph: nodes, edges and their order."""
