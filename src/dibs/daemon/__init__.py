"""The process around the queue: it builds the parts, serves them, watches devices and cleans up.

Imports everything above it, and `http_api` inside the function that builds all parts. Nobody imports `main`.
"""
