"""The walk through the source lines of one real update."""
