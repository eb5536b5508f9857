"""What a registered function is to the rest: a definition, a payload codec and a context."""
