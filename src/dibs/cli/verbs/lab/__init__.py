"""Verbs about how people share a machine: groups of jobs, reservations and usage; one module per verb."""
