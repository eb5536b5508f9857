"""The HTTP API, `/api/v1`: one file for each noun, each with its `ROUTES`."""
