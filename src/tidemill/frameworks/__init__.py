"""Where Tidemill meets web frameworks. Each module imports its own framework and nothing imports these."""
