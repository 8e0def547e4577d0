"""Trained runs, used on new samples."""
