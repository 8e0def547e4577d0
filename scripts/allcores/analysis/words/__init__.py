"""What a study's numbers say, in sentences."""
