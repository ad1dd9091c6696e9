"""How a request is put together."""
