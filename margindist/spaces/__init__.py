"""Where the rows live: in memory, in a Gram matrix, or as features of a kernel."""
