"""Talking to the daemon from the command line and from Python, with the standard library alone.

Imports `submission` and what lies above it. It starts the daemon when none listens.
"""
