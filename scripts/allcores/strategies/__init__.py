"""One file per way of sharing the work; base.py holds the contract."""
