"""The PostgreSQL store: the same promises across machines, in the database the application has."""
