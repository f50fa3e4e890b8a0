"""The machine-wide right to a GPU, and the line for it: kernel locks that all users and programs share.

Imports `scheduling`, `model` and `system`, lean modules only: it runs inside every runner under `python -I -S`.
"""
