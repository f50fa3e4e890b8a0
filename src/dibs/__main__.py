"""`python -m dibs`: the same as `dibs`."""

import sys

from dibs.cli import fast

if __name__ == "__main__":
    fast.main()

    from dibs.cli import main

    sys.exit(main())
