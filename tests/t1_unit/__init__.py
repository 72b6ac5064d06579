"""Tests of pure logic, without processes or network."""
