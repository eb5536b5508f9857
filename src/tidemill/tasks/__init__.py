"""Registered tasks: definition, payload codec, context of a handler, pools and usage."""
