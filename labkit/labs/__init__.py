"""One module per notebook: a paper's generators wired to knobs and panels."""
