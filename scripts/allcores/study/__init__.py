"""From a config to runs: what is asked for, checked, named and identified. No torch."""
