"""Train on every core, and say which way of using them is fastest. Each folder is a wing; see
CONTRIBUTING.md for which may import which."""
