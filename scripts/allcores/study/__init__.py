"""From a config to runs, which are checked, named and identified. No torch."""
