"""A mutation run: change one line of the source in a copy, and see whether a test notices."""
