"""Prepared datasets on disk, their folds and splits, and batches."""
