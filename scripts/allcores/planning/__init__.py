"""What is known of runs before they are trained: how long, how large, and in which order."""
