"""What people ask of a gateway and tell it to do: one module for each noun.

Each returns models (gateway.serialize): the admin API answers with them, pages show them, and the
command line prints them. Names of clients are escaped (gateway.text); sizes end in ``_bytes``,
times in ``_ns`` or are ISO 8601, durations end in ``_seconds``. No module here prints, parses
arguments or knows HTTP.
"""
