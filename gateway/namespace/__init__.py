"""The namespace: names, attributes and the life cycle of content, as operations on a transaction.

Each group of operations has one file. An operation takes a transaction (or a read session) as its
first argument. It checks first and writes then: it raises a NamespaceError before it changes
anything that must not be kept.
"""
