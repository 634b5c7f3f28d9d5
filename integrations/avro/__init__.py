"""Avro messages as columns, and columns as Avro messages, with a schema registry or without (``pip install 'rayad[avro]'``); the design:
docs/decisions/140-avro-in-a-column.md.

``parse_column.py`` and ``format_column.py`` are the steps. A schema is made known by ``schemas.py``; ``types.py`` says which column has its
values, ``logical.py`` turns numbers and bytes into dates and decimals. ``resolving.py`` makes of the writer's and the reader's schema the
``readers.py`` that read a batch of messages field by field with a ``cursor.py``; ``writers.py`` is the other direction.
"""
