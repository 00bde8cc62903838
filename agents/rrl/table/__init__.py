"""RRL as the paper has it: a Q table per load level, and a network that infers the neighbours' costs."""
