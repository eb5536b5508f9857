"""Forecasts compared with what a worker really does, in virtual time."""
