"""Images at rest, folds and splits of them, batches."""
