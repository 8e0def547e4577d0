"""One run from data to results: the loop, and what it is made of."""
