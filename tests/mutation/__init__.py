"""A mutation run: changes one line of the source in a copy, and checks that a test fails."""
