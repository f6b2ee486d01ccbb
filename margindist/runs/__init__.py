"""Many fits, none lost and none done twice: cells, the store that keeps them, the runner, tests of significance."""
