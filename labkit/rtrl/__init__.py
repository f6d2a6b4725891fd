"""labkit.rtrl."""
