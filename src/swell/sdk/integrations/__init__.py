"""One file a framework, each a few lines for its user. Nothing here is imported until asked for."""
