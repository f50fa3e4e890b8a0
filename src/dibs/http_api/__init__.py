"""The HTTP API: one module per resource, the request guard, event streams, OpenAPI.

May import every package before it. Only `daemon` starts it.
"""
