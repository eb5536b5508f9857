"""The Redis store: the same promises across machines."""
