"""Studies from Python: cross_validate() and compare_strategies() write a config and run it."""
