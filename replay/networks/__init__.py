"""Networks: dimensions made of building blocks, and networks of single links with their routes."""
