"""What models predict: one file per kind of target, each with the contract of base.py."""
