"""What runs: knobs, buttons, a figure that follows, and what a page plays later."""
