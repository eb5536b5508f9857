"""Code that the applications share: settings, database access, provider clients and the start of the
simulator.

To support another provider API, add a module beside `gemini.py`."""
