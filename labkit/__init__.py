"""labkit: a lab bench for learning rules beyond back-propagation plus Adam."""

__version__ = "0.4.0"
