"""Processes that work together: launched, watched, and how they talk to each other."""
