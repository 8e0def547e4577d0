"""Small networks of one shape, trained at once: each step computes all of them."""
