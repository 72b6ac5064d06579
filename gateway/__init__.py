"""The gateway: namespace, content life cycle and drain. Knows neither C nor HTTP routes."""
