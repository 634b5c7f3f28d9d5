"""What ``rayad doctor`` looks at. A machine tells facts, a pure rule judges each, so that every rule can be tried on facts that are wrong.

`machine` looks at the machine that it runs on, `rules` judges that, `storage` tries a store, `cluster` has every node look at itself and
compares them.
"""
