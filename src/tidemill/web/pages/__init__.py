"""The pages of the dashboard: one file for each, with its `ROUTES`."""
