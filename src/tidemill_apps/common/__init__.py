"""What the applications share: settings from the environment, a database of their own, the providers they
call and the simulator that stands in for those.

A user who plugs in another service writes one class beside `providers/gemini.py`.
"""
