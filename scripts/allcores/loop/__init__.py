"""Strategies for any training loop."""
