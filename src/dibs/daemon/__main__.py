"""`python -m dibs.daemon`: the daemon as a process, as clients and installed units start it."""

from dibs.daemon import main

if __name__ == "__main__":
    main.main()
