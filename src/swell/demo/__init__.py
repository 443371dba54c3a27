"""What `swell demo` runs: real numpy trainings that share four slots, and the check that none lost any work.

`trainer` runs inside the jobs; `story` says which jobs arrive when; `check` trains the same again without any
interruption and compares. Only the command line imports this package.
"""
