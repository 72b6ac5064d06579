"""Spillway's tests."""
