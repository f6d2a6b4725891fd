"""To come."""

EXPERIMENTS = ()
