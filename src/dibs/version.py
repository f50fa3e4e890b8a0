"""The version of dibs, in the one place that packaging, daemon and client read it from.

Lean.
"""

__version__ = "0.2.0"
