"""Entry point of ``python -m preflight``."""

from preflight.cli.main import main

if __name__ == "__main__":
    main()
