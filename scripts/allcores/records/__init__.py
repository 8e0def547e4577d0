"""What says that something was made: marks."""
