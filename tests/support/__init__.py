"""What several tests share: fixtures and fakes."""
