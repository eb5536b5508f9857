"""Tidemill runs background jobs against rate-limited, paid APIs."""
