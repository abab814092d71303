"""What the user writes: tasks, what they access, and the graph of one step."""
