"""What models predict: a file for each kind of target, with the contract of base.py."""
