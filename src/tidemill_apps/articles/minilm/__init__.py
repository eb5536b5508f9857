"""A small real model on this machine, behind the API that OpenAI's clients speak.

`python -m tidemill_apps.articles.minilm --port 8091` serves `POST /v1/embeddings` with all-MiniLM-L6-v2 in
int8: 384 numbers for a text, no key, no network. It was trained on English.
"""
