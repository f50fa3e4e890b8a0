"""What may go wrong with one run of one tool: it is told in the table, and the other tools go on."""

from __future__ import annotations


class Failed(Exception):
    """A run gave no number; the text says why, in words for the table."""
