"""Where handlers run: on the loop (the executor itself), in threads, in processes of their own."""
