"""The stores. `app.py` picks one by its URL's scheme; they never import each other."""
