"""What is remembered of every attempt, and what must be the same for it to answer."""
