"""`python compare_weights.py ONE OTHER`: prints the largest difference between two saved state dicts."""

import sys

import torch

one, other = (torch.load(path) for path in sys.argv[1:])
assert one.keys() == other.keys()
print(max((one[name] - other[name]).abs().max().item() for name in one))
