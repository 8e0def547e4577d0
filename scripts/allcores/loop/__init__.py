"""Strategies in anybody's training loop."""
