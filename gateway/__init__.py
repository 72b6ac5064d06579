"""The gateway: namespace, content life cycle and drain. It knows neither C nor HTTP routes."""
