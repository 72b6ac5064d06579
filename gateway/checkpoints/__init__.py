"""Which directories and files are checkpoints, and how far each of them is.

``rules.py`` decides, by what it is told of a place (``facts.py``). The rules of frameworks are in
``frameworks.py``, those of the configuration in ``configured.py``. ``tree.py`` and ``tally.py``
read places and members from the database, ``catalogue.py`` keeps the table, and ``follower.py``
follows the journal. ``leftovers.py`` says what killed saves have left in checkpoints of the table.
"""
