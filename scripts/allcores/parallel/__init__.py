"""Processes that work together: how they are launched, watched, and talk to each other."""
