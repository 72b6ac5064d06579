"""The namespace: names, attributes and the life cycle of content, as operations on a transaction.

One file per group of verbs. Each verb takes a transaction (or a read session) first, checks, then
writes; it raises a NamespaceError before it has changed anything it does not want kept.
"""
