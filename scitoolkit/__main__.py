"""Entry point of `python -m scitoolkit`, the same as the command `scitoolkit`."""

from scitoolkit.cli.main import main

if __name__ == "__main__":
    main()
