"""Communication operations, their groups, and the waits that name them."""
