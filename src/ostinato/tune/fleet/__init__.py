"""A search over the devices of many hosts: an agent on each, and an engine that places them and carries messages."""
