"""The machine-wide right to a GPU, and the line for it: kernel locks shared by all users and all programs.

Imports `scheduling`, `model` and `system`, lean modules only: it runs inside every runner under `python -I -S`.
"""
