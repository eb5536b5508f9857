"""Applications that run on Tidemill, and use only its public names."""
