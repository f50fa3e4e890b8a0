"""The command line: `main` finds the verb, `verbs/` has one file per verb, the rest prints and explains.

May import every package except `daemon` and `http_api`. Only the program itself imports it.
"""
