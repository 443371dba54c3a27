"""How many small mistakes would the tests notice? Random single-line mutants, by a seed.

    python -m benchmarks.mutants.collect              # once: which tests execute which line, into out/lines
    python -m benchmarks.mutants policy speed --count 17 --seed 12
    python -m benchmarks.mutants shim --near FILE     # without the first: tests that somebody named (`near`)

Each mutant changes one thing on one line (`making`) of a copy of the tree, and the tests that execute that line
(`lines`) run on the copy until one fails (`killing`). Nothing in the tree itself is changed.
"""
