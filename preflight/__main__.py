"""``python -m preflight``."""

from preflight.entry import main

if __name__ == "__main__":
    main()
