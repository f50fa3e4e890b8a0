"""The SQLite database: the only SQL of dibs, in `sql/`, one writer and several readers.

Imports `model`, `scheduling` and `sweeps`. Others use `writer.Store`, `reader.Reader` and the rows they return.
"""
