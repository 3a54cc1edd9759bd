"""Tables of pages in docs, each written between two marks from the results of a benchmark.

A module has `PAGE`, the marks `BEGIN` and `END`, and `table()`, which returns Markdown, empty when
nothing is stored. `benchmarks/readme.py` writes all of them.
"""
