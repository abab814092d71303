"""Devices, by name and by identity, and leases of them."""
