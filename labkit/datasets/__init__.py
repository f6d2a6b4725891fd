"""labkit.datasets."""
