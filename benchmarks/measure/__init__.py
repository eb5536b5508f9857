"""What is measured. Every function takes a fresh adapter and returns plain numbers."""
