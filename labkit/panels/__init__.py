"""labkit.panels."""
