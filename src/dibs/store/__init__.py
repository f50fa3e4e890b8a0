"""The SQLite database: all SQL of dibs, in `sql/`; one writer and several readers.

Imports `model`, `scheduling` and `sweeps`. Other packages use `writer.Store`, `reader.Reader` and the rows they return.
"""
