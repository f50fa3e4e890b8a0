"""GPUPeasy: its server, its page and its list of jobs, on top of dibs.

`core` answers the requests of the old server, `gui` is the page. A waiting job is a held job of dibs; `dispatcher`
releases the next one when a GPU of the list is free.
"""
