"""The HTTP interface: one file for each resource, the guard before them, event streams, OpenAPI.

Imports everything above it. Only `daemon.main` starts it.
"""
