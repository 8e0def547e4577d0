"""What the machine gives: cores, their leases, memory, processes, time. No torch."""
