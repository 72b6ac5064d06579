"""Commands against a gateway on another machine, by its admin API.

A module here gets the facts from the API and gives them to the functions of ``gateway.cli`` that
show them. Nothing here is imported unless a gateway is named: httpx takes a tenth of a second.
"""
