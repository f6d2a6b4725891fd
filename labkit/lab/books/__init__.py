"""One file a notebook, or two: its knobs, its rows, its pictures, what it measures."""
