"""What the machine provides: cores, leases of them, memory, processes and time.

Only lean_torch.py imports torch.
"""
