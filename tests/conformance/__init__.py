"""Public test suites, which run against our gateway and against a reference on the same disk."""
