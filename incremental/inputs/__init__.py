"""Where collections begin: records that come, that replace each other, that a log tells of, or that are given live."""
