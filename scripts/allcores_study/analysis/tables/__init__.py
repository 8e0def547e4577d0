"""Tables of a study, one file each; products.py explains what a file declares."""
