"""Metrics for Prometheus, made of the facts of the gateway at each scrape."""
