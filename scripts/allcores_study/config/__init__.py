"""From a config to runs, which are checked, named and identified. No torch.

It imports no other folder; the components that a config names are loaded by registry.py.
"""
