"""A search, from its candidates to its report."""
