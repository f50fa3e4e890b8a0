"""A job's output and the metrics it reports, as files: reading, searching, following.

Imports `model` and `system`. Searching and counting run in child processes with limits.
"""
