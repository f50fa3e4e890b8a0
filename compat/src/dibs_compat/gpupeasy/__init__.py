"""GPUPeasy: its server, its page and its list of jobs, on the queue of dibs.

`core` answers what the old server answered, `gui` is the page. A job that waits here is a job that dibs holds; `desk`
lets the next one go when a GPU of the list is free.
"""
