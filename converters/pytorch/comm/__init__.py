"""Communication operations, their groups, and what ranks must agree on."""
