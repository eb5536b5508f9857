"""The measurements. Every function takes a new adapter and returns plain numbers."""
