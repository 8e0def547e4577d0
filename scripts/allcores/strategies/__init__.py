"""One file per strategy of sharing the work; base.py holds the contract."""
