"""Other people's test suites, run against our gateway and against a reference on the same disk."""
