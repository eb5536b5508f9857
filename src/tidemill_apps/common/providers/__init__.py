"""The paid APIs an application calls: a model that answers in JSON, and vectors of texts.

`chat` and `embeddings` say what an application expects, `gemini` and `openai` are two that keep it, `chosen`
picks by settings. None of them tries anything again: the engine does, and it must know of every call. What
they raise is read by pools: an answer that refuses is an `httpx2.HTTPStatusError` with the response, a call
that never arrived or was never answered an `httpx2.TransportError`.
"""
