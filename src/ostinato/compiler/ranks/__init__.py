"""From the step of a whole job to that of one rank: its operations, and the messages that they need."""
