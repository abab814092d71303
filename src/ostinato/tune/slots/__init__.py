"""Places where one candidate at a time is built or measured."""
