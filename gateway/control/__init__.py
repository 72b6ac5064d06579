"""What people ask of a gateway and tell it to do: one module for each noun.

The command line prints these facts, and the admin API serves them. Facts are dictionaries that JSON
can hold: names of clients are escaped (gateway.text), sizes end in ``_bytes``, times in ``_ns`` or
are ISO 8601, durations end in ``_seconds``. No module here prints, parses arguments or knows HTTP.
"""
