"""Trained runs, used for new samples."""
