"""The pages: one module for each group and one template for each page, served by the admin API.

A view asks ``gateway.service`` or a route's function for facts, and has a template show them. An
order is a form that works without scripts. Styles and scripts are files: the answer's
Content-Security-Policy allows nothing else.
"""
