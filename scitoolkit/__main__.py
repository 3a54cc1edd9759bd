"""`python -m scitoolkit` is the command `scitoolkit`."""

from scitoolkit.cli.main import main

if __name__ == "__main__":
    main()
