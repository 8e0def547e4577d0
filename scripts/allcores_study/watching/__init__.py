"""The state of a config's results, and what users see of an invocation."""
