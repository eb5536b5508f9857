"""The stores: memory, SQLite, Redis and PostgreSQL, one package each. `tidemill.app.stores` chooses the store
by the scheme of its URL. No store imports another store."""
