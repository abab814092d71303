"""Devices: what each kind can do, behind one small protocol, and arrays in their memory."""
