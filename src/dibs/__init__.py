"""dibs: call dibs on a GPU.

Importing this package costs nothing and needs only the standard library; names load when they are first used.
"""
