"""What the machine provides: cores, leases of them, memory, processes and time.

Only any_torchvision.py imports torch.
"""
