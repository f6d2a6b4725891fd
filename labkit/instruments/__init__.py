"""labkit.instruments."""
