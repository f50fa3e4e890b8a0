"""The process around the queue: build the parts, serve them, watch devices and clean up.

May import all lower packages, and `http_api` inside the function that builds the parts. No module imports `main`.
"""
