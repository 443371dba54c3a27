"""One file per framework; using one takes a few lines of training code. Nothing here is imported until asked for."""
