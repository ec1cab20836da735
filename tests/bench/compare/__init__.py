"""This store beside what people would use instead: one command that measures, and writes docs/performance.md.

`python -m tests.bench.compare [--quick] [--out FILE] [--venv DIR]` makes an environment for the peers, brings
the corpora, lets the peers take turns, and writes tables and plots. Nothing here is timed by a test.
"""
