"""A job's output and the metrics it reports, as files: read, searched, and followed.

Imports `model` and `system`. The children that search and count run with limits, as processes of their own.
"""
