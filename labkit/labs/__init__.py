"""labkit.labs."""
