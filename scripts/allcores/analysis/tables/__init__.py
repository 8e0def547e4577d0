"""Tables of a study, one file each: what a file says of itself is explained in products.py."""
