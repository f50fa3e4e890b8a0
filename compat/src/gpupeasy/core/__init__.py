"""The server that people post jobs to."""
