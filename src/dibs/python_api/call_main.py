"""The program of a job that is a call from Python: `python -P .../dibs/python_api/call_main.py KEY NUMBER`.

It is compiled anew at each start, so it only finds dibs, wherever the caller has it, and hands over.
"""

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from dibs.python_api import call_worker

if __name__ == "__main__":
    call_worker.main()
