"""Strategies for sharing the work, one per file; base.py contains the contract."""
