"""The command line: `main` finds the verb, `verbs/` has one file for each, the rest draws and explains.

Imports everything above it but `daemon` and `http_api`. Nobody imports it but the program.
"""
