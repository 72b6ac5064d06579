"""The admin API and its pages: who may govern a gateway, through HTTP, and how.

``gateway.service`` has the facts and the actions. This package has what HTTP adds to them: access,
problem details, pages of lists, entity tags, audit, jobs.
"""
