"""Example applications that run on Tidemill. They use only Tidemill's public names."""
