"""What the machine gives: cores, their leases, memory, processes, time.

No torch, but in lean_torch.py, which is there to load it.
"""
